package main

import (
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// makeSlurm gives a script a simulated Slurm of its own. Its jobs end with the script.
func makeSlurm(env *testscript.Env) error {
	dir := filepath.Join(env.WorkDir, ".slurm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	env.Setenv(fakeslurm.DirVariable, dir)
	env.Defer(func() {
		if err := fakeslurm.KillAll(dir); err != nil {
			panic(err)
		}
	})
	// The driver passes on none of git's and our variables: nodes have their own.
	nodes := ""
	for _, kv := range isolatedEnv(env.WorkDir) {
		nodes += kv + "\n"
	}
	return os.WriteFile(filepath.Join(dir, fakeslurm.EnvironmentFile), []byte(nodes), 0o600)
}
