"""Acting as a crawler, for the command line: check, warm, export, doctor."""
