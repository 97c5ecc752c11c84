package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/git-agency/git-agency/scripts/fakepodman"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// makeEngines gives a script a simulated Slurm and a simulated podman of its own. Their jobs end with the script.
func makeEngines(env *testscript.Env) error {
	// The engines pass on none of git's and our variables: nodes have their own.
	nodes := ""
	for _, kv := range isolatedEnv(env.WorkDir) {
		nodes += kv + "\n"
	}
	for _, engine := range []struct {
		variable, dir, environment string
		killAll                    func(string) error
	}{
		{fakeslurm.DirVariable, ".slurm", fakeslurm.EnvironmentFile, fakeslurm.KillAll},
		{fakepodman.DirVariable, ".podman", fakepodman.EnvironmentFile, fakepodman.KillAll},
	} {
		dir := filepath.Join(env.WorkDir, engine.dir)
		env.Setenv(engine.variable, dir)
		env.Defer(func() {
			if err := engine.killAll(dir); err != nil {
				panic(err)
			}
		})
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, engine.environment), []byte(nodes), 0o600)); err != nil {
			return err
		}
	}
	return nil
}
