"""Ready-made panels: one loader per dataset, each giving long frames that `Forecaster` takes as they are."""
