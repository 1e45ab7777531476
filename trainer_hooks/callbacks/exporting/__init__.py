"""Export modules to files that run without their code: TorchScript, ONNX, torch.export."""
