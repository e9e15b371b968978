//go:build tools

// Package tools keeps the programs' modules in go.mod; it is never compiled.
package tools

import (
	_ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
)
