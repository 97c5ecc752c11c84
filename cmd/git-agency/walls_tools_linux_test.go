package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestToolsWorkInPrivateHome runs tools that must work behind walls, with a private home and without a network. What one
// command installs, the next one uses. A tool that is not installed here is skipped by name. TestSSHToAllowedHost,
// TestSignedCommitsBehindWalls and TestLFSBehindWalls are for tools that need more than that.
func TestToolsWorkInPrivateHome(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write(filepath.Join(l.repo, "gotool/go.mod"), "module example.com/tool\n\ngo 1.21\n")
	l.write(filepath.Join(l.repo, "gotool/main.go"), "package main\n\nfunc main() { println(\"go works\") }\n")
	l.write(filepath.Join(l.repo, "js/package.json"), `{"name":"js-tool","version":"1.0.0","bin":{"js-tool":"tool.js"}}`)
	l.write(filepath.Join(l.repo, "js/tool.js"), "#!/usr/bin/env node\nconsole.log('npm works')\n")
	l.write(filepath.Join(l.repo, "app/package.json"), `{"name":"app","version":"1.0.0","dependencies":{"js-tool":"file:../js"}}`)
	l.write(filepath.Join(l.repo, "py/wheel.py"), `import zipfile
with zipfile.ZipFile("pytool-1-py3-none-any.whl", "w") as z:
    z.writestr("pytool.py", "print('pip works')")
    z.writestr("pytool-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: pytool\nVersion: 1\n")
    z.writestr("pytool-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("pytool-1.dist-info/RECORD", "pytool.py,,\npytool-1.dist-info/METADATA,,\npytool-1.dist-info/WHEEL,,\npytool-1.dist-info/RECORD,,\n")
`)
	l.write(filepath.Join(l.repo, "c/Makefile"), "all: hello\n\t./hello\nhello: hello.c\n\tcc -o hello hello.c\n")
	l.write(filepath.Join(l.repo, "c/hello.c"), "#include <stdio.h>\nint main(void) { puts(\"cc works\"); return 0; }\n")
	l.write(filepath.Join(l.repo, "rs/Cargo.toml"), "[package]\nname = \"rs-tool\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
	l.write(filepath.Join(l.repo, "rs/src/main.rs"), "fn main() { println!(\"cargo works\") }\n")
	l.git("add", "-A")
	l.git("commit", "-qm", "tools")
	l.agency("worktree", "create", "wt")
	id := l.agency("start", "wt", "--outputs", "none")
	var env []string
	if home, err := os.UserHomeDir(); err == nil { // the programs of rustup look for their toolchain there
		env = append(env, "RUSTUP_HOME="+filepath.Join(home, ".rustup"))
	}
	if out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output(); err == nil && exists(strings.TrimSpace(string(out))) { // its layer is warm
		env = append(env, "GOCACHE="+strings.TrimSpace(string(out)))
	}
	// The shims of pyenv write to the home that they are installed in, which is not that of the lab.
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return strings.Contains(dir, "/.pyenv/") })
	env = append(env, "PATH="+strings.Join(append([]string{l.bin}, dirs...), ":"))
	for _, c := range []struct {
		long     bool // not with -short, because another case or TestBuildToolsWorkInsideWalls runs the same tool
		name     string
		programs string // all of them must be installed
		install  string // in one command
		use      string // in the next; it prints want
		want     string
	}{
		{false, "go build", "go", "cd gotool && go build -o /tmp/app .", "cd gotool && go build -o /tmp/app . && /tmp/app 2>&1", "go works"},
		{true, "go install", "go", "cd gotool && go install .", `"$(go env GOPATH)/bin/tool" 2>&1`, "go works"},
		{false, "cargo", "cargo rustc", "cd rs && cargo install --offline --path . --target-dir /tmp/t", `"$HOME/.cargo/bin/rs-tool"`, "cargo works"},
		{false, "npm i -g", "npm node", "npm i -g --offline ./js", "js-tool", "npm works"},
		{true, "pnpm", "pnpm node", "cd app && pnpm install --offline", "cd app && pnpm exec js-tool", "npm works"},
		{false, "pip --user", "python3 pip3", "cd py && python3 wheel.py && python3 -m pip install --user --no-index --break-system-packages -q ./*.whl", "cd / && python3 -m pytool", "pip works"},
		{true, "venv", "python3", `python3 -m venv --without-pip "$HOME/venv"`, `"$HOME/venv/bin/python" -c 'print("venv works")'`, "venv works"},
		{true, "make and cc", "make cc", "make -s -C c hello", "make -s -C c", "cc works"},
		{false, "git lfs", "git-lfs", "git lfs install --skip-repo", "git config --global filter.lfs.clean", "git-lfs clean"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.long {
				t.Skip("skipped with -short")
			}
			for program := range strings.FieldsSeq(c.programs) {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("skipped: %s is not installed", program)
				}
				if out := l.try(env, "sh", "-c", program+" --version || "+program+" version"); out.code != 0 {
					t.Skipf("skipped: %s does not work outside the walls: %s", program, out.stderr)
				}
			}
			if out := l.try(env, "git", "agency", "exec", id, "--", "sh", "-c", c.install); out.code != 0 {
				t.Fatalf("%s exited with %d:\n%s%s", c.install, out.code, out.stdout, out.stderr)
			}
			if out := l.try(env, "git", "agency", "exec", id, "--", "sh", "-c", c.use); !strings.Contains(out.stdout, c.want) {
				t.Errorf("%s exited with %d:\n%s%s", c.use, out.code, out.stdout, out.stderr)
			}
		})
	}
	for _, name := range []string{"go/bin/tool", ".local/bin/js-tool", ".local/lib", "venv", ".cargo/bin/rs-tool"} {
		if _, err := os.Lstat(filepath.Join(l.dir, "home", name)); err == nil {
			t.Errorf("the real home has %s", name)
		}
	}
}
