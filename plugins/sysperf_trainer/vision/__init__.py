"""The vision workload: ResNet on JPEG files."""
