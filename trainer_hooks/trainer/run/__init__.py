"""One run of fit, validate, test or predict: set up, watch, save, tear down."""
