package main

// shellScripts are the completions that setup installs, by shell: bash, zsh and fish.
func shellScripts() map[string][]byte { return nil }
