//go:build !linux

package main

func addPlatformCommands(map[string]func()) {}
