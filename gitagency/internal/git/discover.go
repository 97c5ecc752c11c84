package git

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Open finds the repository that git itself would use in dir with the environment env, and checks that git is new
// enough. The returned Repo runs git with a scrubbed environment.
func Open(ctx context.Context, dir string, env []string) (*Repo, error) {
	asked := Runner{Dir: dir, Env: append(parseableEnv(env), "LC_ALL=C")}
	repo := discoverByTrace(ctx, asked)
	if repo == nil {
		var err error
		if repo, err = discoverByQueries(ctx, asked); err != nil {
			return nil, explainRefusal(ctx, asked, err)
		}
	}
	if err := checkRefStorage(repo.Config.Value(config.RefStorageKey)); err != nil {
		return nil, err
	}
	switch {
	case !repo.Version.AtLeast(MinimumVersion):
		return nil, &TooOldError{Have: repo.Version}
	case !utf8.ValidString(repo.CommonDir):
		return nil, fmt.Errorf("the path of the repository, %q, is not valid UTF-8; it cannot be stored in records", repo.CommonDir)
	}
	repo.Env = scrubEnv(env)
	repo.InHook = slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_INDEX_FILE=") })
	return repo, nil
}

// discoverByTrace finds an ordinary repository with a single "git config": its output has the settings, its trace the
// version of git and the worktree. Every command of ours waits for this, and a process costs more than its answer. It
// returns nil when the repository must be found by discoverByQueries.
func discoverByTrace(ctx context.Context, run Runner) *Repo {
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"} {
		if proc.Getenv(run.Env, name) != "" {
			return nil
		}
	}
	run.Env = append(slices.Clip(run.Env), "GIT_TRACE2=1", "GIT_TRACE2_BRIEF=1")
	cfg, trace, err := run.readSettings(ctx)
	if err != nil {
		return nil
	}
	repo := &Repo{Config: cfg}
	if _, elsewhere := cfg.Last("core.worktree"); elsewhere {
		return nil
	}
	version, ok := traceValue(trace, "version")
	if !ok {
		return nil // this git is older than trace2
	}
	if repo.Version, err = parseVersion("git version " + version); err != nil {
		return nil
	}
	tree, ok := traceValue(trace, "worktree")
	if !ok || !filepath.IsAbs(tree) {
		return nil
	}
	here, err := filepath.EvalSymlinks(run.Dir)
	if err != nil {
		return nil
	}
	if repo.TopLevel, err = filepath.EvalSymlinks(tree); err != nil || !strings.HasPrefix(here+"/", repo.TopLevel+"/") {
		return nil
	}
	if repo.GitDir, repo.CommonDir, err = resolveGitDirs(repo.TopLevel); err != nil {
		return nil
	}
	// The file that the local settings came from proves that git found this repository.
	own, ok := cfg.Last(config.FormatVersionKey)
	origin, inFile := strings.CutPrefix(own.Origin, "file:")
	if !ok || own.Scope != "local" || !inFile {
		return nil
	}
	if !filepath.IsAbs(origin) {
		origin = filepath.Join(tree, origin)
	}
	if origin, err = filepath.EvalSymlinks(filepath.Dir(origin)); err != nil || origin != repo.CommonDir {
		return nil
	}
	return repo
}

// traceValue returns the rest of the line that begins with word. once is false unless exactly one line does.
func traceValue(trace, word string) (rest string, once bool) {
	for line := range strings.Lines(trace) {
		if after, ok := strings.CutPrefix(line, word+" "); ok {
			if once {
				return "", false
			}
			rest, once = strings.TrimSuffix(after, "\n"), true
		}
	}
	return rest, once
}

// resolveGitDirs follows the .git of a worktree to its git directory and to the common directory.
func resolveGitDirs(tree string) (own, common string, err error) {
	own = filepath.Join(tree, ".git")
	if data, err := durable.ReadFile(own, 1<<16); err == nil {
		if own = parseDotGit(tree, data); own == "" {
			return "", "", fmt.Errorf("the .git file of %s does not name a git directory", tree)
		}
	}
	if own, err = filepath.EvalSymlinks(own); err != nil {
		return "", "", err
	}
	common, err = resolveCommonDir(own)
	return own, common, err
}

// resolveCommonDir returns the common directory of a git directory.
func resolveCommonDir(own string) (string, error) {
	common := own
	if data, err := durable.ReadFile(filepath.Join(own, "commondir"), 1<<16); err == nil {
		if common = strings.TrimRight(string(data), "\r\n"); !filepath.IsAbs(common) {
			common = filepath.Join(own, common)
		}
	}
	return filepath.EvalSymlinks(common)
}

// discoverByQueries runs one git per question, all at the same time.
func discoverByQueries(ctx context.Context, run Runner) (*Repo, error) {
	version := proc.Async(func() (Version, error) { return readVersion(ctx, run) })
	config := proc.Async(func() (config.Settings, error) { return readConfig(ctx, run) })
	repo, err := revParseRepo(ctx, run)
	v, verr := version()
	c, cerr := config()
	switch {
	case verr != nil:
		return nil, verr
	case !v.AtLeast(MinimumVersion):
		return nil, &TooOldError{Have: v} // the reason why the other queries failed
	case err != nil:
		return nil, err
	case cerr != nil:
		return nil, cerr
	}
	repo.Version, repo.Config = v, c
	return repo, nil
}

// revParseSeparator separates the answers of rev-parse, which has no -z: it echoes arguments that it does not know.
const revParseSeparator = "--agency-end-of-path"

// revParseRepo asks rev-parse for the common directory, the git directory and the worktree.
func revParseRepo(ctx context.Context, run Runner) (*Repo, error) {
	out, err := run.Output(ctx, "rev-parse", "--path-format=absolute",
		"--git-common-dir", revParseSeparator, "--git-dir", revParseSeparator, "--show-toplevel")
	parts := strings.Split(string(out), "\n"+revParseSeparator+"\n")
	bare := ExitedWith(err, 128) && len(parts) == 3 && parts[2] == "" // in a bare repository --show-toplevel, the last argument, is fatal
	switch {
	case err != nil && !bare:
		return nil, &NoRepositoryError{GitDir: missingGitDir(run.Dir), Err: err}
	case len(parts) != 3:
		return nil, fmt.Errorf("git rev-parse answered %q", out)
	}
	repo := &Repo{}
	if repo.CommonDir, err = filepath.EvalSymlinks(parts[0]); err != nil {
		return nil, err
	}
	if repo.GitDir, err = filepath.EvalSymlinks(parts[1]); err != nil {
		return nil, err
	}
	if !bare {
		if repo.TopLevel, err = filepath.EvalSymlinks(strings.TrimSuffix(parts[2], "\n")); err != nil {
			return nil, err
		}
	}
	return repo, nil
}
