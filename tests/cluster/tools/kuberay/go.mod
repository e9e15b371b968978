// KubeRay's CRDs for the cluster tests, pinned. Nothing of it is built.
module specpilot.io/tests/cluster/tools/kuberay

go 1.26.0

require github.com/ray-project/kuberay/ray-operator v1.5.0
