package settings

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// causeTexts describe the causes for which the policy has no more to say.
var causeTexts = map[walls.Reason]string{
	walls.ReasonDefault:     "default: everything else on this machine, read-only",
	walls.ReasonSandbox:     "the tree of the sandbox",
	walls.ReasonFixed:       "identifies the sandbox",
	walls.ReasonMailbox:     "questions and requests to git-agency; not the directory of the tree",
	walls.ReasonRecord:      "task of the agent, or the answer to its question",
	walls.ReasonGitDir:      "the git directory; commits are checked and then imported",
	walls.ReasonRepository:  "the repository; this sandbox is a clone, which borrows the objects and sees nothing else of it",
	walls.ReasonDataDir:     "records of git-agency, and other sandboxes",
	walls.ReasonTemporary:   "temporary files, empty at first; gone with the last command",
	walls.ReasonHome:        "home of the sandbox, with nothing but what is listed here; agency.sandbox.home = readonly shows yours",
	walls.ReasonIntegration: "integration worktree, whose ignored and untracked files may be secrets",
	walls.ReasonSecret:      "default: credentials, histories and the like; agency.sandbox.read shows it",
	walls.ReasonCredentials: "settings of git, without credentials",
	walls.ReasonAgentSocket: "socket of a program that acts for you, named by the environment",
	walls.ReasonListener:    "a process outside of the sandbox listens there",
	walls.ReasonOtherCache:  "no cache of a known tool; agency.sandbox.write = private:<path> shows it",
	walls.ReasonNeeded:      "needed by commands: PATH, objects of git, or name resolution",
	walls.ReasonMask:        "read-only, except for the hidden paths in it",
}

// kernelTexts describe the file systems that each sandbox has of its own.
var kernelTexts = map[string]string{
	"/dev":  "read-only, with null, zero, full, random, urandom, tty and the pseudo-terminals of the sandbox",
	"/sys":  "of this machine, read-only",
	"/proc": "with the processes of the sandbox; what concerns the machine is read-only or empty",
}

// softwareTexts describe the files that are added to another root file system.
var softwareTexts = map[string]string{
	"/etc/passwd": "of the root file system, with your user", "/etc/group": "of the root file system, with your group",
	"/etc/hosts": "for the name of the loopback, or all names of this machine", "/etc/resolv.conf": "of this machine", walls.ProgramInSoftware: "git-agency itself",
}

// Explain says in words why a path appears behind the walls as it does. runner is the agent that the sandbox is for.
func (p Policy) Explain(cause walls.Cause, runner string) string {
	switch cause.Reason {
	case walls.ReasonRead, walls.ReasonWrite, walls.ReasonPrivateWrite, walls.ReasonHide:
		return p.explainGrant(cause)
	case walls.ReasonKernel:
		return kernelTexts[cause.Named]
	case walls.ReasonLogin:
		return "login of the runner " + runner
	case walls.ReasonCache:
		return "cache of a tool" + p.cacheVariable(cause.Named)
	case walls.ReasonSoftware:
		return cmp.Or(softwareTexts[cause.Named], "root file system "+cause.Named+", read-only")
	case walls.ReasonTool:
		switch i := slices.Index(p.tools, cause.Named); {
		case i < 0:
			return "named in the configuration of git"
		case i < p.toolRootCount:
			return "programs, where a tool keeps them"
		}
		return "programs on PATH, or what belongs to them"
	}
	return causeTexts[cause.Reason]
}

// explainGrant names the setting that a grant comes from.
func (p Policy) explainGrant(cause walls.Cause) string {
	key := map[walls.Reason]string{walls.ReasonRead: ReadKey, walls.ReasonHide: hideKey}[cause.Reason]
	if key == "" {
		key = WriteKey
	}
	for _, g := range p.grants {
		if g.path != cause.Named || g.private != (cause.Reason == walls.ReasonPrivateWrite) {
			continue
		}
		switch {
		case g.key != key:
		case slices.Contains(p.Separate, g.path):
			return "directory that the sandbox is over"
		case g.setting.Scope == allowScope:
			return "git agency allow " + AllowFlags[key]
		default:
			return fmt.Sprintf("%s, %s configuration (%s)", g.key, g.setting.Scope, g.setting.Origin)
		}
	}
	return key
}

// ExplainCopy says why the private home has a copy of a file.
func (p Policy) ExplainCopy(path string) (walls.Reason, string) {
	home := namesOfHome(p.home)
	for _, g := range p.grants {
		if g.private && home.rename(g.configured) == home.rename(path) {
			return walls.ReasonPrivateWrite, p.explainGrant(walls.Cause{Reason: walls.ReasonPrivateWrite, Named: g.path})
		}
	}
	return walls.ReasonCredentials, "settings of git or a tool, without credentials"
}

// cacheVariable returns the variable that names a cache, as text to append; empty if there is none.
func (p Policy) cacheVariable(path string) string {
	for _, c := range p.ToolCaches {
		if c.named == path && c.variable != "" {
			return ", named by " + c.variable + " or in its usual place"
		}
	}
	return ""
}
