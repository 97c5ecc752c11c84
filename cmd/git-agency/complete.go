package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// complete answers a shell in which somebody pressed TAB:
//
//	git-agency __complete -- <words of the line>... <word at the cursor>
//
// These words never reach urfave, so that no command can run, whatever they are. The repository is
// opened at most once and only looked at, and there is no way to fail: whoever presses TAB wants
// candidates or silence.
//
// The answer is one candidate a line, "value TAB description". It is not cut down to what begins like
// the word at the cursor, since shells differ in what they count as a match. A line without a value
// tells the shell what to complete by itself: "TAB files", "TAB directories", "TAB commands" or "TAB commits".
// One that ends in a slash goes on: no space comes behind it.
func (t *tool) complete(ctx context.Context, words []string) {
	if len(words) < 2 || words[0] != "--" {
		return
	}
	for _, c := range t.candidates(ctx, t.app(), words[1:]) {
		if line, ok := c.line(); ok {
			_, _ = t.stdout.WriteString(line) // the error comes back from Flush
		}
	}
	_ = t.stdout.Flush() // who asked is gone, and there is nobody else to tell
}

const completeWord = "__complete"

// asksToComplete reports whether a command line is a question of one of our scripts. It must be
// answered by complete, and never run.
func asksToComplete(args []string) bool {
	return len(args) > 1 && args[1] == completeWord
}

// candidate is one word that could stand at the cursor. Without a value it names something that the
// shell completes better than we could.
type candidate struct{ value, description string }

// line is a candidate as the scripts read it. A value that no line can hold, or that would steer the
// terminal, is not offered.
func (c candidate) line() (string, bool) {
	if !utf8.ValidString(c.value) || strings.ContainsAny(c.value, "\n\t") || strings.ContainsFunc(c.value, steering) {
		return "", false
	}
	if c.description == "" {
		return c.value + "\n", true
	}
	return c.value + "\t" + strings.Join(strings.Fields(printable(c.description)), " ") + "\n", true
}

// asked is a command line up to the cursor.
type asked struct {
	ctx     context.Context
	tool    *tool
	app     *cli.App
	levels  []*argLevel // the program, and the commands that were named
	args    []string    // the arguments in front of the cursor
	given   []string    // the flags in front of the cursor, as typed
	pending string      // the flag whose value stands at the cursor
	begun   string      // what of the argument or value at the cursor is typed
	dashed  bool        // there was a "--"
	unknown bool        // there was a word that is no command
}

// candidates is what could stand in the place of the last word.
func (t *tool) candidates(ctx context.Context, app *cli.App, words []string) []candidate {
	line, current := words[:len(words)-1], words[len(words)-1]
	a := &asked{ctx: ctx, tool: t, app: app, levels: []*argLevel{{cmd: &cli.Command{Flags: app.Flags, Subcommands: app.Commands}}}}
	a.read(line)
	a.begun = current
	command := a.levels[len(a.levels)-1].cmd
	switch flag, value, hasValue := strings.Cut(current, "="); {
	case a.unknown:
		return nil
	case a.pending != "":
		return a.offer(a.flagKind(a.pending), "")
	case a.dashed:
		return a.offer(a.argumentKind(" --"), "")
	case isFlag(current) && hasValue:
		a.begun = value
		return a.offer(a.flagKind(flag), flag+"=")
	case strings.HasPrefix(current, "-"):
		return a.flags()
	case len(command.Subcommands) > 0:
		return commandList(command.Subcommands)
	}
	return a.offer(a.argumentKind(""), "")
}

// read goes along the words in front of the cursor as permute does.
func (a *asked) read(line []string) {
	for i := 0; i < len(line) && !a.unknown; i++ {
		word, current := line[i], a.levels[len(a.levels)-1].cmd
		switch {
		case a.dashed:
			a.args = append(a.args, word)
		case word == "--":
			a.dashed = true
		case isFlag(word):
			a.given = append(a.given, word)
			_, takesValue := flagOwner(a.levels, word)
			switch {
			case takesValue && i+1 == len(line):
				a.pending = word
			case takesValue && line[i+1] != "--":
				i++
			}
		case len(current.Subcommands) > 0:
			cmd := current.Command(word)
			a.unknown = cmd == nil
			a.levels = append(a.levels, &argLevel{cmd: cmd})
		default:
			a.args = append(a.args, word)
		}
	}
}

// offer asks a kind for its candidates, each of which then begins with prefix.
func (a *asked) offer(k kind, prefix string) []candidate {
	if k == nil {
		return nil
	}
	found, err := k(a)
	if err != nil {
		return nil // nothing to offer, and nobody wants to know why
	}
	// What a record or a setting holds must not turn into an option.
	found = slices.DeleteFunc(found, func(c candidate) bool { return strings.HasPrefix(c.value, "-") })
	for i, c := range found {
		if c.value != "" {
			found[i].value = prefix + c.value
		}
	}
	return found
}

// command is the name of the command, with those of the commands it belongs to.
func (a *asked) command() string {
	var names []string
	for _, l := range a.levels[1:] {
		names = append(names, l.cmd.Name)
	}
	return strings.Join(names, " ")
}

func (a *asked) argumentKind(suffix string) kind {
	kinds := argumentKinds[a.command()+suffix]
	switch at, last := len(a.args), len(kinds)-1; {
	case last > 0 && kinds[last] == nil && at >= last: // more
		return kinds[last-1]
	case at <= last:
		return kinds[at]
	}
	return nil
}

// flagKind finds what the value of a flag stands for, by whichever of its names it was typed.
func (a *asked) flagKind(word string) kind {
	for _, l := range slices.Backward(a.levels) {
		for _, f := range l.cmd.Flags {
			if !named(f, word) {
				continue
			}
			for _, name := range f.Names() {
				if k, ok := flagKinds[a.command()+" "+dashed(name)]; ok {
					return k
				}
				if k, ok := flagKinds[dashed(name)]; ok {
					return k
				}
			}
			return nil
		}
	}
	return nil
}

// flags lists the flags of the commands that were named, the innermost first, and those of the program.
// One that is there already is not offered again, unless it may be given several times.
func (a *asked) flags() []candidate {
	var found []candidate
	for _, l := range slices.Backward(a.levels) {
		for _, f := range l.cmd.Flags {
			name := f.Names()[0]
			doc, documented := f.(cli.DocGenerationFlag)
			visible, canHide := f.(cli.VisibleFlag)
			again := slices.ContainsFunc(a.given, func(word string) bool { return named(f, word) })
			switch {
			case canHide && !visible.IsVisible():
			case again && !repeatable(f):
			case name == "version" && len(a.levels) > 1: // it is about the program, not about a command
			case slices.ContainsFunc(found, func(c candidate) bool { return c.value == dashed(name) }):
			case documented:
				found = append(found, candidate{dashed(name), strings.ReplaceAll(doc.GetUsage(), "`", "")})
			default:
				found = append(found, candidate{dashed(name), ""})
			}
		}
	}
	return found
}

func repeatable(f cli.Flag) bool {
	if generic, ok := f.(*cli.GenericFlag); ok {
		_, ok := generic.Value.(*words)
		return ok
	}
	slice, ok := f.(cli.DocGenerationSliceFlag)
	return ok && slice.IsSliceFlag()
}

// named reports whether a word of the line is this flag.
func named(f cli.Flag, word string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	return slices.Contains(f.Names(), name)
}

func commandList(commands []*cli.Command) []candidate {
	var found []candidate
	for _, c := range commands {
		if !c.Hidden {
			found = append(found, candidate{c.Name, c.Usage})
		}
	}
	return found
}

// kind is what a word stands for: it lists the words that could stand there.
type kind func(*asked) ([]candidate, error)

// more repeats the kind before it.
var more kind

// text is anything; there is nothing to offer.
func text(*asked) ([]candidate, error) { return nil, nil }

// These the shell completes by itself.
var (
	directories = byShell("directories")
	files       = byShell("files")
	programs    = byShell("commands")
	commits     = byShell("commits")
)

func byShell(what string) kind {
	return func(*asked) ([]candidate, error) { return []candidate{{"", what}}, nil }
}

func oneOf(values ...string) kind {
	return func(*asked) ([]candidate, error) {
		var found []candidate
		for _, v := range values {
			found = append(found, candidate{v, ""})
		}
		return found, nil
	}
}

func primitive(name string) kind { return oneOf(gitagency.PrimitiveValues(name)...) }

// variableNames are the variables that there are, but for those that come with the question.
func variableNames(a *asked) ([]candidate, error) {
	var names []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "_" && name != "GIT_CONFIG_PARAMETERS" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return oneOf(slices.Compact(names)...)(a)
}

// states are what can be compared: words, and then snapshots. Where those cannot be read, the words are still there.
func states(a *asked) ([]candidate, error) {
	found, _ := oneOf(gitagency.DiffStates...)(a)
	snapshots, _ := snapshotNames(a)
	return append(found, snapshots...), nil
}

// sandboxDirectories are the directories of the sandbox that the line names, one level below what is typed.
func sandboxDirectories(a *asked) ([]candidate, error) {
	if len(a.args) == 0 {
		return nil, nil
	}
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	sandbox, err := repo.Sandbox(a.args[0])
	if err != nil {
		return nil, err
	}
	above := a.begun[:strings.LastIndex(a.begun, "/")+1]
	names, err := sandbox.Directories(above)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, name := range names {
		found = append(found, candidate{above + name + "/", ""})
	}
	return found, nil
}

// commandNames are the commands below the one that the arguments name so far.
func commandNames(a *asked) ([]candidate, error) {
	commands := a.app.Commands
	for _, name := range a.args {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
		if i < 0 {
			return nil, nil
		}
		commands = commands[i].Subcommands
	}
	return commandList(commands), nil
}

func (a *asked) open() (*gitagency.Repository, error) { return gitagency.Open(a.ctx, a.tool.opts) }

func profiles(a *asked) ([]candidate, error) {
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	return oneOf(repo.Profiles()...)(a)
}

// presentWorktrees are those that sandboxes start from, first by name and then by id.
func presentWorktrees(a *asked) ([]candidate, error) { return listWorktrees(a, false) }

// presentOrBrokenWorktrees are those that there is something to see or to remove of. A broken one
// answers to its id only.
func presentOrBrokenWorktrees(a *asked) ([]candidate, error) { return listWorktrees(a, true) }

func listWorktrees(a *asked, brokenToo bool) ([]candidate, error) {
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	worktrees, err := repo.Worktrees(brokenToo)
	if err != nil {
		return nil, err
	}
	var names, ids []candidate
	for _, w := range worktrees {
		switch {
		case w.Broken:
			ids = append(ids, brokenWorktree(w))
		case w.State == "present":
			names = append(names, candidate{w.Name, w.Branch})
			ids = append(ids, candidate{w.ID, w.Name})
		}
	}
	return append(names, ids...), nil
}

// invocations are all there are: what has ended or is broken can be looked at too.
func invocations(a *asked) ([]candidate, error) {
	return listInvocations(a, func(gitagency.Invocation) bool { return true })
}

// withSandbox are the invocations that one can work in.
func withSandbox(a *asked) ([]candidate, error) {
	return listInvocations(a, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return err == nil
	})
}

// landable are the invocations whose work can land, but those on the line already.
func landable(a *asked) ([]candidate, error) {
	return listInvocations(a, func(i gitagency.Invocation) bool {
		_, err := i.Path()
		return err == nil && i.Verifies == "" && !slices.Contains(a.args, i.ID)
	})
}

// submittable are the invocations that can be put into review, but those on the line already.
func submittable(a *asked) ([]candidate, error) {
	return listInvocations(a, func(i gitagency.Invocation) bool {
		return !i.Broken && i.Verifies == "" && (i.Landing == "" || i.Landing == "rejected") && !slices.Contains(a.args, i.ID)
	})
}

// inReview are the invocations that can be rejected.
func inReview(a *asked) ([]candidate, error) {
	return listInvocations(a, func(i gitagency.Invocation) bool { return !i.Broken && i.Landing == "review" })
}

// undiscarded are the invocations that can still be discarded, but those on the line already.
func undiscarded(a *asked) ([]candidate, error) {
	return listInvocations(a, func(i gitagency.Invocation) bool {
		return (i.Broken || i.Landing != "discarded") && !slices.Contains(a.args, i.ID)
	})
}

func listInvocations(a *asked, wanted func(gitagency.Invocation) bool) ([]candidate, error) {
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	all, err := repo.Invocations(gitagency.ListRequest{All: true})
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, i := range all {
		if wanted(i) {
			found = append(found, candidate{i.ID, listed(i.Name, i.Worktree, state(i))})
		}
	}
	return found, nil
}

// snapshotNames are the snapshots of all invocations, by the names that people can type.
func snapshotNames(a *asked) ([]candidate, error) {
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	all, err := repo.Snapshots(a.ctx, gitagency.SnapshotsRequest{Uncounted: true})
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, s := range all {
		found = append(found, candidate{s.Name(), listed(s.Subject(), ago(a.tool.now(), s.TakenAt))})
	}
	return found, nil
}

// broken is everything that is broken, invocations and worktrees.
func broken(a *asked) ([]candidate, error) {
	repo, err := a.open()
	if err != nil {
		return nil, err
	}
	invocations, err := repo.Invocations(gitagency.ListRequest{All: true})
	if err != nil {
		return nil, err
	}
	worktrees, err := repo.Worktrees(true)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, i := range invocations {
		if i.Broken {
			found = append(found, candidate{i.ID, listed("invocation", i.Name, state(i))})
		}
	}
	for _, w := range worktrees {
		if w.Broken {
			found = append(found, brokenWorktree(w))
		}
	}
	return found, nil
}

func brokenWorktree(w gitagency.Worktree) candidate {
	return candidate{w.ID, listed("worktree", w.Name, "broken: "+w.BrokenReason)}
}

// listed joins what is known.
func listed(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}
