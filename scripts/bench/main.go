// Command bench measures git-agency against plain git, in one run and on temporary repositories, and exits 1 if the
// tool breaks a performance promise. `make bench` runs it.
//
// The two sides of a comparison take turns round by round, because the speed of a shared machine drifts. It compares
// medians, or the fastest rounds where the comparison says so, and measures a promise that looks broken once more
// with twice the rounds. That does not help on a machine that is busy all the time: promises in milliseconds then
// measure the other processes, so the row of such a promise shows the CPU pressure. Some file
// systems create files slowly after many deletions, so the trees are removed at the end, or earlier if space is short.
// TMPDIR selects the file system. With 20 GB there, 35 GB when all is measured again, nothing is removed early; 5 and 12
// GB suffice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processStartName is the baseline of commands that have no counterpart in git.
const processStartName = "version"

var errPromiseBroken = errors.New("a promise is broken")

func main() {
	tool := flag.String("tool", "", "the git-agency to measure, a `path` (required)")
	rounds := flag.Int("rounds", 1, "measure `N` times as many rounds")
	only := flag.String("only", "", "measure only this `group`: "+strings.Join(groupNames(), ", "))
	verbose := flag.Bool("v", false, "also print every single measurement")
	flag.Parse()
	if *tool == "" || *rounds < 1 || flag.NArg() > 0 || *only != "" && !slices.Contains(groupNames(), *only) {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *tool, *rounds, *verbose, *only)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// run creates the temporary directory, measures in it, and removes it.
func run(ctx context.Context, tool string, factor int, verbose bool, only string) (err error) {
	tool, err = filepath.Abs(tool)
	if err != nil {
		return fmt.Errorf("find the tool: %w", err)
	}
	root, err := os.MkdirTemp("", "git-agency-bench-")
	if err != nil {
		return fmt.Errorf("create a temporary directory: %w", err)
	}
	defer func() {
		if e := removeAll(root); e != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", e))
		}
	}()
	b, err := newBench(tool, root, factor, verbose)
	if err != nil {
		return err
	}
	against, _, err := b.git(ctx, root, "version")
	if err != nil {
		return err
	}
	measured, _, err := b.agency(ctx, root, "version")
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s, %d CPUs, in %s; medians; for commands behind walls and small differences the fastest round\n\n", strings.TrimSpace(measured), strings.TrimSpace(against), runtime.NumCPU(), root)
	broken := false
	for _, g := range groups {
		if only != "" && only != g.name {
			continue
		}
		if err := b.makeSpace(); err != nil {
			return err
		}
		kept, err := b.measureGroup(ctx, g)
		if err != nil {
			return err
		}
		broken = broken || !kept
	}
	if broken {
		return errPromiseBroken
	}
	return nil
}

// group is a number of comparisons that are prepared together. Its function may measure and print rows of its own; sound
// says whether their promises are kept.
type group struct {
	name        string
	comparisons func(*bench, context.Context) (_ []comparison, sound bool, err error)
}

// groups are in the order of the rows. Those that create most trees are far apart, as their files may have to be removed.
var groups = []group{
	{"trees", (*bench).treeComparisons},
	{"real", (*bench).realComparisons},
	{"peers", (*bench).peerComparisons},
	{"parallel", (*bench).parallelComparisons},
	{"sandboxes", (*bench).sandboxComparisons},
	{"snapshots", (*bench).snapshotComparisons},
	{"walls", (*bench).wallComparisons},
	{"diffs", (*bench).diffComparisons},
	{"radars", (*bench).radarComparisons},
	{"landings", (*bench).landingComparisons},
	{"listings", (*bench).listingComparisons},
	{"crowded", (*bench).crowdedComparisons},
	{"platforms", (*bench).platformComparisons},
	{"containers", (*bench).containerComparisons},
	{"large", (*bench).largeTreeComparisons},
}

func groupNames() (names []string) {
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// makeSpace removes the directories of the groups that are done if there may be too little space for the next.
func (b *bench) makeSpace() error {
	const enough = 12 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(b.root, &fs); err != nil {
		return fmt.Errorf("find the free space: %w", err)
	}
	if fs.Bavail*uint64(fs.Bsize) >= enough {
		return nil
	}
	for _, name := range groupNames() {
		if err := removeAll(filepath.Join(b.root, name)); err != nil {
			return fmt.Errorf("make space: %w", err)
		}
	}
	return nil
}

// measureGroup measures a group in a directory of its own and reports whether all promises are kept.
func (b *bench) measureGroup(ctx context.Context, g group) (kept bool, err error) {
	dir := filepath.Join(b.root, g.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, err
	}
	in, err := newBench(b.tool, dir, b.roundsFactor, b.verbose)
	if err != nil {
		return false, err
	}
	contests, kept, err := g.comparisons(in, ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", g.name, err)
	}
	for _, c := range contests {
		ok, err := in.measureAndReport(ctx, c)
		if err != nil {
			return false, fmt.Errorf("%s: %w", c.title, err)
		}
		kept = kept && ok
	}
	return kept, nil
}

// sandboxComparisons measures exec and put in a sandbox.
func (b *bench) sandboxComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	files, err := b.newUploadRepo(ctx, 10_000)
	if err != nil {
		return nil, false, err
	}
	bare, err := b.newRepository(ctx, "bare", 200)
	if err != nil {
		return nil, false, err
	}
	id, _, err := b.agency(ctx, bare.dir, "start", worktreeName, "--isolation", "none")
	if err != nil {
		return nil, false, err
	}
	bare.sandboxes = append(bare.sandboxes, strings.TrimSpace(id))
	const program = "/bin/true" // does nothing, so that only the overhead is measured
	return []comparison{
		{
			title: "exec without walls", rounds: 40, promise: promise{extra: 15 * time.Millisecond},
			baseName: "alone", base: b.timeCommand(program, bare.dir), tool: b.timeCommand(b.tool, bare.dir, "exec", bare.sandboxes[0], "--", program),
		},
		{
			title: "put, 10,000 files", rounds: 10, promise: promise{ratio: 2},
			baseName: "cp -r", base: files.copyWithCP, tool: files.put, check: files.checkLastPut,
		},
	}, true, nil
}

// promise is an upper bound for the tool: a ratio, extra time, a ratio plus extra time, an absolute limit, a ratio and an
// absolute limit, or none.
type promise struct {
	ratio float64
	extra time.Duration
	limit time.Duration
}

func (p promise) isKept(r result) bool {
	switch {
	case p.limit != 0:
		return r.tool < p.limit && (p.ratio == 0 || r.ratio() <= p.ratio)
	case p.ratio != 0:
		return float64(r.tool) <= p.ratio*float64(r.base)+float64(p.extra)
	case p.extra != 0:
		return r.extra() <= p.extra
	}
	return true
}

func (p promise) String() string {
	switch {
	case p.limit != 0 && p.ratio != 0:
		return fmt.Sprintf("promise: ≤ %s, < %s", formatRatio(p.ratio), p.limit)
	case p.limit != 0:
		return fmt.Sprintf("promise: < %s", p.limit)
	case p.ratio != 0 && p.extra != 0:
		return fmt.Sprintf("promise: ≤ %s + %d ms", formatRatio(p.ratio), p.extra.Milliseconds())
	case p.ratio != 0:
		return "promise: ≤ " + formatRatio(p.ratio)
	case p.extra != 0:
		return fmt.Sprintf("promise: ≤ +%d ms", p.extra.Milliseconds())
	}
	return ""
}

// formatDifference formats the difference in the terms of the promise. A ratio to the start of a process means
// nothing.
func (c comparison) formatDifference(r result) string {
	if c.promise.extra != 0 && c.promise.ratio == 0 || c.baseName == processStartName {
		return fmt.Sprintf("%+.1f ms", float64(r.extra().Microseconds())/1000)
	}
	return formatRatio(r.ratio())
}

// formatRatio formats a ratio, small ones with more digits.
func formatRatio(ratio float64) string {
	if ratio < 0.1 {
		return fmt.Sprintf("%.4f ×", ratio)
	}
	return fmt.Sprintf("%.2f ×", ratio)
}

// measureAndReport measures a comparison, prints its row and reports whether its promise is kept.
func (b *bench) measureAndReport(ctx context.Context, c comparison) (bool, error) {
	if c.baseName == "" {
		c.baseName = "raw git"
	}
	c.rounds *= b.roundsFactor
	syscall.Sync() // flush the prepared files before measuring
	r, err := b.measureRounds(ctx, c)
	if err != nil {
		return false, err
	}
	var said []string
	if !c.promise.isKept(r) {
		first := c.formatDifference(r)
		c.rounds *= 2
		if r, err = b.measureRounds(ctx, c); err != nil {
			return false, err
		}
		said = append(said, fmt.Sprintf("measured again with %d rounds: the first %d gave %s", c.rounds, c.rounds/2, first))
		if r.cpuPressure != "" {
			said = append(said, r.cpuPressure)
		}
	}
	if c.check != nil {
		if err := c.check(ctx); err != nil {
			return false, err
		}
	}
	kept := c.promise.isKept(r)
	if c.promise != (promise{}) {
		said = slices.Insert(said, 0, verdict(kept))
	}
	if c.note != nil {
		said = append(said, c.note())
	}
	printRow(c.title, c.baseName, millis(r.base), "git-agency", millis(r.tool), c.formatDifference(r), c.promise.String(), strings.Join(said, "; "))
	return kept, nil
}

func verdict(kept bool) string {
	if kept {
		return "ok"
	}
	return "BROKEN"
}

func printRow(what, base, baseValue, tool, toolValue, compared, promised, said string) {
	if promised != "" {
		promised = "(" + promised + ")"
	}
	row := fmt.Sprintf("%-28s  %-7s %8s   %-10s %8s   %9s   %-20s  %s", what, base, baseValue, tool, toolValue, compared, promised, said)
	fmt.Println(strings.TrimRight(row, " "))
}

func millis(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
