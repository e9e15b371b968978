//go:build tools

// Package tools keeps the programs' modules in go.mod; it is never compiled.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
