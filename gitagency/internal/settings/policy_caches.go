package settings

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// cacheHome is the variable of the directory in which many programs have their caches, browsers and mail among them.
const cacheHome = "XDG_CACHE_HOME"

// toolCacheNames are the directories in cacheHome that a private home shows: caches of compilers, package managers and the
// like. The login in that of Hugging Face is among homeSecrets.
var toolCacheNames = setOf(
	// Go
	"go-build", "gopls", "golangci-lint", "staticcheck", "goimports", "buf",
	// Python
	"pip", "pip-tools", "pipenv", "pypoetry", "uv", "pdm", "hatch", "virtualenv", "pre-commit", "prek", "mypy", "ruff", "black", "pylint", "pyright-python",
	"jedi", "parso", "matplotlib", "numba", "rattler", "pyinstaller",
	// JavaScript
	"npm", "pnpm", "yarn", "node", "node-gyp", "nvm", "bun", "deno", "typescript", "esbuild", "swc", "turbo", "turborepo", "prisma", "electron",
	"electron-builder", "Cypress", "puppeteer", "ms-playwright", "ms-playwright-go", "ms-playwright-python", "selenium",
	// C, C++, Rust, Zig
	"ccache", "sccache", "clangd", "meson", "vcpkg", "conan", "cargo", "cargo-zigbuild", "cargo-xwin", "rust-analyzer", "zig", "zls", "bazel", "bazelisk", "bazel-disk-cache", "buck2",
	// others
	"composer", "bundler", "gem", "gradle", "maven", "coursier", "bloop", "mill", "scala-cli", "cabal", "stack", "ghcide", "hie-bios", "opam", "dune", "nim",
	"elixir_make", "rebar3", "julia", "R", "renv", "nix", "mise", "trivy", "fontconfig",
	// models
	"torch", "whisper", "huggingface",
)

// fillCaches sets the paths of caches. In a private home, those in cacheHome are omitted that are not of known tools, unless
// the user grants them, or all of it: other programs keep pages, mails and credentials there.
func (p *Policy) fillCaches() error {
	home := cmp.Or(guard.ResolveOrEmpty(p.home), p.home)
	for _, c := range p.ToolCaches {
		p.Caches = append(p.Caches, c.named)
		if c.variable == cacheHome && c.exists && p.privateHome && guard.Contains(home, c.path) && !p.grantsPath(c.path) {
			known, others, err := p.listCaches(c.path)
			if err != nil {
				return fmt.Errorf("list the caches in %s: %w", c.path, err)
			}
			p.Known, p.Omitted = map[string][]string{c.named: known}, map[string][]string{c.named: others}
		}
	}
	return nil
}

// grantsPath reports whether a path is a grant.
func (p *Policy) grantsPath(path string) bool {
	return slices.ContainsFunc(p.grants, func(g grant) bool { return g.path == path })
}

// listCaches returns the names in a directory that are in toolCacheNames, and those of the others that are not granted and
// contain no grant. Where there is no directory, there are none.
func (p *Policy) listCaches(dir string) (known, others []string, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0) // a named pipe would wait for a writer
	if isMissing(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil { // a name that is not listed would not be omitted
		return nil, nil, err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		switch {
		case toolCacheNames[name]:
			known = append(known, name)
		case !slices.ContainsFunc(p.grants, func(g grant) bool { return guard.IsOrContains(path, g.path) }):
			others = append(others, name)
		}
	}
	return known, others, nil
}

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
