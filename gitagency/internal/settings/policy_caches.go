package settings

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// cacheHome is the variable of the directory in which many programs have their caches, browsers and mail among them.
const cacheHome = "XDG_CACHE_HOME"

// toolCacheNames are the directories in cacheHome that a private home shows: caches of compilers, package managers and the
// like. Of a directory that also holds a login, only parts are listed.
var toolCacheNames = []string{
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
	"torch", "whisper", "huggingface/hub", "huggingface/datasets", "huggingface/modules", "huggingface/xet",
}

// cachePaths returns the paths of caches behind walls. In a private home, these are of cacheHome only the directories of
// known tools, unless the user grants all of it: the other programs there keep pages, mails and credentials.
func (p Policy) cachePaths() []string {
	var paths []string
	home := cmp.Or(guard.ResolveOrEmpty(p.home), p.home)
	for _, c := range p.ToolCaches {
		granted := slices.ContainsFunc(p.grants, func(g grant) bool { return g.path == c.path })
		if c.variable != cacheHome || !p.privateHome || granted || !guard.Contains(home, c.path) {
			paths = append(paths, c.named)
			continue
		}
		paths = append(paths, knownCaches(c.named)...)
	}
	return paths
}

// knownCaches returns the directories of toolCacheNames that a directory has.
func knownCaches(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // as many as can be read
	has := make(map[string]bool, len(names))
	for _, name := range names {
		has[name] = true
	}
	var paths []string
	for _, name := range toolCacheNames {
		if first, _, _ := strings.Cut(name, "/"); has[first] {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}
