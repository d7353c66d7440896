/** The MIME type of a report; its number is the schema's major version. */
export const MIME_TYPE = 'application/vnd.graphbreak.report.v1+json';

/** The MIME type of a job, which contains the reports of several processes. */
export const JOB_TYPE = 'application/vnd.graphbreak.job.v1+json';

/** The MIME type of the compressed data that the HTML of an output leaves out. */
export const REST_TYPE = 'application/vnd.graphbreak.rest.v1+json';
