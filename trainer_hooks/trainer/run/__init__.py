"""One run of fit, validate, test or predict: set up, save, resume, tear down."""
