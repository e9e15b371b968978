//go:build tools

// Package tools keeps the programs' modules in go.mod; it is never compiled.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
