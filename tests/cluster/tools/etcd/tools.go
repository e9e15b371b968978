//go:build tools

// Package tools keeps the programs' modules in go.mod; it is never compiled.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
