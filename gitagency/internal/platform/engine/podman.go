package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/images"
)

// Podman runs jobs as containers, by the client of podman or of docker. There is no queue: a job begins when it is submitted.
//
// The id of a job is that of its container, which stays until the job is reaped.
type Podman struct {
	Channel
	Client string   // podman or docker
	Image  string   // of the containers
	Args   []string // options of the user for "run", after ours: of two equal ones the last counts
	Brief  bool     // Probe leaves out the version, unless there is no image to ask for

	killWait time.Duration // between SIGTERM and SIGKILL; zero: defaultKillWait

	submitWait    time.Duration // for a client that starts a container; zero: submitTimeout
	interruptWait time.Duration // for such a client after an interrupt; zero: the constant
	poller
}

var _ Driver = Podman{}

// defaultKillWait is the time between SIGTERM and SIGKILL: 5 seconds for an agent that ignores the first, the rest for the push of its work.
const defaultKillWait = 30 * time.Second

// programDir is the directory of containers at which the program of a job is mounted, if the machine has it.
const programDir = "/usr/local/bin"

// noClient is the exit code of a script that does not find the client (EX_UNAVAILABLE).
const noClient = 69

// Submit starts a container. There is no queue, so TimeLimit, Memory and Requeue have no meaning: the node side enforces the limits of the run. An
// error that is not a *RejectedError leaves open whether it runs: List finds it by its name.
func (p Podman) Submit(ctx context.Context, job Job) (string, error) {
	if err := p.check(job); err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	// A client that is killed may leave a container that never begins, so it goes on for a while after an interrupt, and after the end of
	// this process.
	channel := p.Channel
	channel.Outlive = true
	starting, cancel := p.withTimeout(context.WithoutCancel(ctx), cmp.Or(p.submitWait, submitTimeout), []string{p.Client, "run"})
	defer cancel()
	starting, interrupt := context.WithCancelCause(starting)
	defer interrupt(nil)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(cmp.Or(p.interruptWait, interruptWait)):
			interrupt(context.Cause(ctx))
		case <-starting.Done():
		}
	})()
	a, err := channel.ask(starting, p.Client, []string{"sh", "-c", p.submitScript(job)}, "")
	if err != nil && starting.Err() != nil { // the client was killed
		_, removeErr := p.askClient(context.WithoutCancel(ctx), p.Client, "rm", "--force", job.Name)
		return "", errors.Join(err, removeErr)
	}
	if err = cmp.Or(err, p.missing(a)); err != nil {
		return "", err
	}
	if a.exit != 0 {
		return "", cmp.Or(p.unreachable(a), error(&RejectedError{Engine: p.Client, Detail: p.detail(a)}))
	}
	words := strings.Fields(a.stdout)
	if len(words) == 0 || !isContainerID(words[len(words)-1]) {
		return "", fmt.Errorf("%s run printed no id of a container but %q", p.Client, oneLine(a.stdout))
	}
	return words[len(words)-1], nil
}

// check refuses a job that cannot be a container.
func (p Podman) check(job Job) error {
	if err := job.check(); err != nil {
		return err
	}
	if p.Image == "" {
		return fmt.Errorf("job %s has no image", job.Name)
	}
	for _, path := range job.Paths {
		if strings.ContainsAny(path.Source+path.Target, `,"`) {
			return fmt.Errorf("job %s: %s cannot be mounted in a container, because its name has a comma or a quote", job.Name, path.Source)
		}
	}
	return nil
}

// submitScript returns the script that starts a container. It runs on the machine with the client, which alone knows whether it has the
// program. The clients keep a container whose program cannot be started; the script removes it.
func (p Podman) submitScript(job Job) string {
	programs := append([]string{job.Argv[0]}, job.Programs...)
	name := filepath.Base(programs[len(programs)-1])
	return strings.NewReplacer(
		"@CLIENT@", shellWord(p.Client), "@OPTIONS@", shellWords(p.runOptions(job)), "@IMAGE@", shellWord(p.Image), "@ARGUMENTS@", shellWords(job.Argv[1:]),
		"@PROGRAMS@", shellWords(programs), "@TARGET@", shellWord(programDir+"/"+name), "@PROGRAM@", shellWord(name), "@ARGS@", shellWords(p.Args),
		"@NAME@", shellWord(job.Name),
	).Replace(submitContainer)
}

const submitContainer = `command -v @CLIENT@ >/dev/null 2>&1 || exit 69
` + findProgram + `if [ -n "$found" ]; then
	found=$(command -v "$found")
	set -- --mount "type=bind,source=$(readlink -f "$found"),target="@TARGET@,readonly --entrypoint @TARGET@
else
	set -- --entrypoint @PROGRAM@
fi
@CLIENT@ run @OPTIONS@ --hostname "$(uname -n)" "$@" @ARGS@ @IMAGE@ @ARGUMENTS@ </dev/null
status=$?
[ "$status" -ne 0 ] || exit 0
if [ "$status" -eq 127 ]; then
	status=1 # of ssh, 127 means that the client is missing
	if [ -n "$found" ]; then
		echo "$found cannot be started in the container: it has to be linked statically, or the image needs its libraries" >&2
	else
		echo "there is no program "@PROGRAM@" on $(uname -n), and none in the image" >&2
	fi
fi
case $(@CLIENT@ container inspect --format '{{.State.Status}}' @NAME@ 2>/dev/null) in
created | configured | initialized) @CLIENT@ rm @NAME@ >/dev/null 2>&1 ;;
esac
exit "$status"
`

// logDrivers maps a client to a log driver that keeps bytes as they are. The journal, a default of podman, limits their rate; json-file, the
// default of docker, cannot hold bytes that are not UTF-8. docker's local keeps the last 100 MB, which is more than a node writes.
var logDrivers = map[string]string{"podman": "k8s-file", "docker": "local"}

// runOptions returns the options of "run" for a job.
//
// The filters of engines for system calls and their masks of /proc forbid the namespaces and mounts with which a job can isolate what it
// runs; labels of SELinux would forbid the mounted paths.
func (p Podman) runOptions(job Job) []string {
	options := []string{
		"--detach", "--name=" + job.Name, "--pull=never", "--workdir=/", "--log-driver=" + logDrivers[p.Client],
		"--security-opt=seccomp=unconfined", "--security-opt=label=disable",
		"--stop-signal=TERM", "--stop-timeout=" + strconv.Itoa(int(defaultKillWait.Seconds())), // used by "podman stop" and at a shutdown of the machine
	}
	if p.Client == "docker" {
		options = append(options, "--security-opt=apparmor=unconfined", "--security-opt=systempaths=unconfined")
	} else {
		options = append(options, "--security-opt=unmask=ALL", "--http-proxy=false") // proxies may have passwords, which podman would keep
	}
	for _, path := range job.Paths {
		kind := "bind"
		if !filepath.IsAbs(path.Source) {
			kind = "volume"
		}
		mount := "--mount=type=" + kind + ",source=" + path.Source + ",target=" + path.Target
		if !path.Write {
			mount += ",readonly"
		}
		options = append(options, mount)
	}
	return options
}

// List inspects all containers at once.
func (p Podman) List(ctx context.Context, jobs []Ref) ([]Status, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	argv := []string{p.Client, "container", "inspect", "--format", inspectFormat}
	for _, job := range jobs {
		if err := checkContainer(job); err != nil {
			return nil, err
		}
		argv = append(argv, cmp.Or(job.ID, job.Name))
	}
	a, err := p.askClient(ctx, argv...)
	if err != nil {
		return nil, err
	}
	told := parseContainers(a.stdout)
	var all []Status
	for _, job := range jobs {
		at := slices.IndexFunc(told, func(st Status) bool { return st.ID == job.ID || job.ID == "" && st.Name == job.Name })
		switch {
		case at >= 0:
			told[at].Name = job.Name // the user may have renamed the container
			all = append(all, told[at])
		case !saysNoContainer(a, cmp.Or(job.ID, job.Name)): // only "no such container" means that it was removed; after any other error, the job may still run
			return nil, p.failed(a)
		}
	}
	return all, nil
}

// checkContainer refuses a job whose name or id could be an option, or name another container.
func checkContainer(job Ref) error {
	if job.ID != "" && !isContainerID(job.ID) {
		return fmt.Errorf("%q is not an id of a container", job.ID)
	}
	return checkName(job.Name)
}

// isContainerID reports whether a text is the full id of a container.
func isContainerID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// Watch asks List in pauses that grow while nothing changes.
func (p Podman) Watch(ctx context.Context, jobs []Ref, changed func([]Status) bool, failed func(error)) error {
	return p.watch(ctx, func() ([]Status, error) { return p.List(ctx, jobs) }, changed, failed)
}

// Cancel signals the program of a container once, and leaves a process that kills the container later. A container that has not begun is
// removed.
func (p Podman) Cancel(ctx context.Context, job Ref) error {
	known, err := p.List(ctx, []Ref{job})
	if err != nil || len(known) == 0 || known[0].State == Ended {
		return err
	}
	id := known[0].ID
	var a answer
	if known[0].State == Queued {
		a, err = p.askClient(ctx, p.Client, "rm", "--force", id)
	} else {
		wait := cmp.Or(p.killWait, defaultKillWait).Seconds()
		a, err = p.askScript(ctx, cancelContainer, p.Client, id, strconv.FormatFloat(wait, 'f', -1, 64))
	}
	if err != nil || a.exit == 0 {
		return err
	}
	if known, err = p.List(ctx, []Ref{job}); err != nil || len(known) == 0 || known[0].State == Ended { // it has just ended
		return err
	}
	if strings.Contains(a.stderr, "container state improper") { // podman has not seen the end of its processes
		if a, err = p.askClient(ctx, p.Client, "rm", "--force", id); err != nil || a.exit == 0 {
			return err
		}
	}
	return p.failed(a)
}

// cancelContainer sends SIGTERM to a container, and SIGKILL some seconds later. Its arguments are the client, the id and the seconds. The
// process that waits has a session of its own where setsid exists. A directory marks a container that was signalled, so that it gets one
// SIGTERM; an old one is left of a process that was killed. The trap keeps a SIGTERM from ending the script between mkdir and kill.
const cancelContainer = `trap : TERM
mark=${TMPDIR:-/tmp}/cancelled-$2
if ! mkdir "$mark" 2>/dev/null && [ -O "$mark" ] && [ -n "$(find "$mark" -maxdepth 0 -mmin -2 2>/dev/null)" ]; then
	exit 0
fi
"$1" kill --signal=TERM "$2" || {
	status=$?
	rmdir "$mark" 2>/dev/null
	exit "$status"
}
session=
command -v setsid >/dev/null 2>&1 && session=setsid
$session sh -c 'sleep "$3"; "$1" kill --signal=KILL "$2"; rmdir "$4"' sh "$@" "$mark" </dev/null >/dev/null 2>&1 &
`

// reapWait is how long a container has to end by itself after SIGTERM when it is reaped: it may still clean up.
const reapWait = 10 * time.Second

// Reap removes a container. One that still runs is told to end, and killed after a while.
func (p Podman) Reap(ctx context.Context, job Ref) error {
	if err := checkContainer(job); err != nil {
		return err
	}
	wait := strconv.Itoa(int(reapWait.Seconds()))
	a, err := p.askScript(ctx, reapContainer, p.Client, cmp.Or(job.ID, job.Name), wait)
	if err != nil || a.exit == 0 || saysNoContainer(a, cmp.Or(job.ID, job.Name)) {
		return err
	}
	return p.failed(a)
}

// reapContainer removes a container and the volumes that were made for it alone.
const reapContainer = `command -v "$1" >/dev/null 2>&1 || exit 69
"$1" stop -t "$3" "$2" >/dev/null 2>&1
exec "$1" rm --volumes "$2"
`

// Limits of the time that a client takes, whose service may hang.
const (
	askTimeout    = 30 * time.Second // longer than reapWait
	submitTimeout = 10 * time.Minute // the first container of a large image may have to copy its files
	interruptWait = 10 * time.Second
)

func (p Podman) withTimeout(ctx context.Context, most time.Duration, argv []string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, &UnreachableError{Engine: p.Client, Argv: argv, Detail: fmt.Sprintf("no answer after %s", most)})
}

// askClient runs a client that answers at once.
func (p Podman) askClient(ctx context.Context, argv ...string) (answer, error) {
	ctx, cancel := p.withTimeout(ctx, askTimeout, argv)
	defer cancel()
	return p.ask(ctx, p.Client, argv, "")
}

// askScript runs a script on the machine with the client that answers at once.
func (p Podman) askScript(ctx context.Context, script string, args ...string) (answer, error) {
	a, err := p.askClient(ctx, append([]string{"sh", "-c", script, "sh"}, args...)...)
	return a, cmp.Or(err, p.missing(a))
}

// missing returns an error if a script did not find the client.
func (p Podman) missing(a answer) error {
	if a.exit != noClient {
		return nil
	}
	return &UnreachableError{Engine: p.Client, Argv: []string{p.Client}, Missing: true, Detail: a.detail()}
}

// saysNoContainer reports whether a client failed because a container does not exist. Lines of ssh may be among its words.
func saysNoContainer(a answer, name string) bool {
	if a.exit == 0 {
		return false
	}
	for line := range strings.Lines(a.stderr) {
		if strings.Contains(line, name) && strings.Contains(strings.ToLower(line), "no such container") {
			return true
		}
	}
	return false
}

func (p Podman) detail(a answer) string {
	return cmp.Or(oneLine(images.ErrorText(a.stderr)), a.detail())
}

// failed returns an *UnreachableError for a client that could not ask its engine.
func (p Podman) failed(a answer) error {
	return &UnreachableError{Engine: p.Client, Argv: p.manualArgv(a), Detail: p.detail(a)}
}

// manualArgv returns a command line for the user to try: that of the client, but no script.
func (p Podman) manualArgv(a answer) []string {
	if a.argv[0] == "sh" {
		return []string{p.Client, "version"}
	}
	return a.argv
}

// unreachable returns an *UnreachableError if a client could not talk to its service, by its words.
func (p Podman) unreachable(a answer) error {
	words := strings.ToLower(a.stderr)
	for _, w := range []string{"cannot connect to", "unable to connect to", "connection refused", "permission denied while trying to connect", "is the docker daemon running"} {
		if strings.Contains(words, w) {
			return p.failed(a)
		}
	}
	return nil
}

// Probe asks for the image, and at the same time for the version: each client takes some 50 ms.
func (p Podman) Probe(ctx context.Context) (Capabilities, error) {
	caps := Capabilities{Accounting: true, KillWait: cmp.Or(p.killWait, defaultKillWait)}
	var image answer
	var imageErr error
	var asked sync.WaitGroup
	if p.Image != "" {
		asked.Go(func() {
			image, imageErr = p.askClient(ctx, p.Client, "image", "inspect", "--format", "{{.Id}}", p.Image)
		})
	}
	format := "{{.Client.Version}}"
	if p.Client == "docker" {
		format = "{{.Server.Version}}" // which fails without the daemon
	}
	var err error
	if !p.Brief || p.Image == "" {
		var version answer
		version, err = p.askClient(ctx, p.Client, "version", "--format", format)
		if caps.Version = oneLine(version.stdout); err == nil && (version.exit != 0 || caps.Version == "") {
			err = p.failed(version)
		}
	}
	asked.Wait()
	if err = cmp.Or(err, imageErr); err != nil {
		return caps, err
	}
	switch {
	case p.Image == "":
		caps.Problem = "no image is chosen for the containers"
	case image.exit != 0 && !images.SaysMissing(image.stderr):
		return caps, p.failed(image)
	case image.exit != 0:
		caps.Problem, caps.MissingImage = p.Client+" has no image "+oneLine(p.Image), p.Image
	}
	return caps, nil
}
