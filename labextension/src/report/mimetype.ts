/** The mime type under which an output carries a report; its number is the schema's major version. */
export const MIME_TYPE = 'application/vnd.graphbreak.report.v1+json';

/** The mime type under which an output carries a job, which is the reports of several processes. */
export const JOB_TYPE = 'application/vnd.graphbreak.job.v1+json';

/** The mime type under which an output carries, compressed, what its HTML leaves out. */
export const REST_TYPE = 'application/vnd.graphbreak.rest.v1+json';
