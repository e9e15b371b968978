"""What the operator serves over HTTP: health, readiness and its own metrics."""
