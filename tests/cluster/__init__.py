"""A real Kubernetes control plane, Prometheus and Helm; a kubelet runs pods as local processes."""
