"""What a person sees: functions of a report alone."""
