"""How models are trained: rows in parts, batches of series, one LightningModule, recorded CUDA steps."""
