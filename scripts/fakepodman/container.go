package fakepodman

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/scripts/descendants"
)

// service is the engine with the state of one directory.
type service struct{ dir string }

// container is the record of a container, which is in a directory with its name.
type container struct {
	ID, Name, Hostname string
	Program            string // as it is found on this machine
	Argv               []string
	Env                []string // of --env
	Dir                string
	Status             string
	Exit               int
	Started            time.Time
	PID                int // of its first process
	Identity           string
	Conmon             int
	ConmonIdentity     string
}

func open(dir string) (*service, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%s is not an absolute path but %q", DirVariable, dir)
	}
	return &service{dir}, os.MkdirAll(filepath.Join(dir, "containers"), 0o755)
}

func (s *service) path(name, file string) string {
	return filepath.Join(s.dir, "containers", name, file)
}

// all lists the containers.
func (s *service) all() (all []container, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "containers"))
	for _, e := range entries {
		text, err := os.ReadFile(s.path(e.Name(), "state"))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is just created or removed
		}
		var c container
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, err
}

// find returns the container of a name or an id.
func (s *service) find(name string) (container, error) {
	all, err := s.all()
	if err != nil {
		return container{}, err
	}
	if i := slices.IndexFunc(all, func(c container) bool { return c.Name == name || c.ID == name }); i >= 0 {
		return all[i], nil
	}
	return container{}, fmt.Errorf("no such container %s", name)
}

func (s *service) save(c container) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(c.Name, "state.new"), text, 0o644); err != nil {
		return err
	}
	return os.Rename(s.path(c.Name, "state.new"), s.path(c.Name, "state"))
}

// run creates a container and starts it.
func (s *service) run(o options, words []string) error {
	name := o.last("--name")
	switch {
	case !o.has("--detach") || name == "" || o.last("--pull") != "never":
		return errors.New("the simulated podman needs --detach, --name and --pull=never")
	case len(words) == 0:
		return errors.New("requires at least 1 arg(s), only received 0")
	case words[0] != Image:
		return fmt.Errorf("%s: image not known", words[0])
	}
	c := container{Name: name, Hostname: o.last("--hostname"), Dir: o.last("--workdir"), Status: "created"}
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	c.ID = hex.EncodeToString(id)
	for _, kv := range o.all("--env") {
		if name, _, hasValue := strings.Cut(kv, "="); !hasValue {
			kv = name + "=" + os.Getenv(name)
		}
		c.Env = append(c.Env, kv)
	}
	program, words := o.last("--entrypoint"), words[1:]
	c.Argv = []string{program}
	seen := map[int]bool{} // indices of words that are paths in a mount
	for _, mount := range o.all("--mount") {
		m := map[string]string{}
		for field := range strings.SplitSeq(mount, ",") {
			key, value, _ := strings.Cut(field, "=")
			m[key] = value
		}
		source, target := m["source"], m["target"]
		if m["type"] == "volume" {
			source = filepath.Join(s.dir, "volumes", source)
			if err := os.MkdirAll(source, 0o755); err != nil {
				return err
			}
		}
		hidden, _ := os.ReadFile(filepath.Join(s.dir, HiddenFile)) // a test need not have one
		prefix := strings.TrimSpace(string(hidden))
		if _, err := os.Stat(source); err != nil || prefix != "" && strings.HasPrefix(source, prefix) {
			return fmt.Errorf("statfs %s: no such file or directory", source)
		}
		if program == target {
			program = source
		}
		for i, word := range words {
			if word == target {
				words[i], seen[i] = source, true
			}
		}
	}
	for i, word := range words {
		if _, err := os.Stat(word); filepath.IsAbs(word) && err == nil && !seen[i] {
			return fmt.Errorf("the simulated podman was given %s, which the container does not see", word)
		}
	}
	c.Program, c.Argv = program, append(c.Argv, words...)
	if err := os.Mkdir(s.path(name, ""), 0o755); err != nil {
		return fmt.Errorf("creating container storage: the container name %q is already in use", name)
	}
	if err := s.save(c); err != nil {
		return err
	}
	if _, err := exec.LookPath(program); err != nil {
		return &exitError{127, fmt.Sprintf("runc: exec: %q: executable file not found in $PATH: OCI runtime attempted to invoke a command that was not found", program)}
	}
	if err := s.startConmon(c); err != nil {
		return err
	}
	fmt.Println(c.ID)
	return nil
}

// startConmon starts the process that supervises a container, and returns when that runs.
func (s *service) startConmon(c container) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := &exec.Cmd{
		Path: self, Args: []string{conmon, c.Name}, Dir: "/", ExtraFiles: []*os.File{write}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		Env: []string{DirVariable + "=" + s.dir},
	}
	if err := errors.Join(cmd.Start(), write.Close()); err != nil {
		return err
	}
	if text, err := io.ReadAll(ready); err != nil || string(text) != "runs" {
		return fmt.Errorf("conmon did not start the container: %s, %w", text, err)
	}
	return cmd.Process.Release()
}

// supervise is the conmon of a container. SIGQUIT ends it with all that the container runs.
func supervise(s *service, args []string) error {
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	c, err := s.find(args[0])
	if err == nil {
		err = descendants.Adopt()
	}
	if err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	syscall.CloseOnExec(3)
	stdout, err := os.Create(s.path(c.Name, "stdout"))
	if err != nil {
		return err
	}
	stderr, err := os.Create(s.path(c.Name, "stderr"))
	if err != nil {
		return err
	}
	environment, _ := os.ReadFile(filepath.Join(s.dir, EnvironmentFile)) // a test need not have one
	cmd := exec.Command(c.Program)
	cmd.Args = c.Argv
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = c.Dir, stdout, stderr, &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, strings.FieldsFunc(string(environment), func(r rune) bool { return r == '\n' })...)
	cmd.Env = append(cmd.Env, c.Env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	c.Status, c.Started = "running", time.Now()
	c.PID, c.Identity = cmd.Process.Pid, descendants.Identity(cmd.Process.Pid)
	c.Conmon, c.ConmonIdentity = os.Getpid(), descendants.Identity(os.Getpid())
	if err := s.save(c); err != nil {
		return err
	}
	if _, err := ready.WriteString("runs"); err != nil {
		return err
	}
	if err := ready.Close(); err != nil {
		return err
	}
	go func() {
		<-quit
		descendants.Kill()
	}()
	_ = cmd.Wait() // the status says all
	descendants.Kill()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	c.Status, c.Exit = "exited", status.ExitStatus()
	if status.Signaled() {
		c.Exit = 128 + int(status.Signal())
	}
	return s.save(c)
}

// inspect prints what a template says about containers.
func (s *service) inspect(format string, names []string) error {
	var missing error
	for _, name := range names {
		c, err := s.find(name)
		if err != nil {
			if missing != nil { // the last one begins with "Error: "
				fmt.Fprintln(os.Stderr, "error", missing)
			}
			missing = errors.New("inspecting object: no such container " + name)
			continue
		}
		started := "0001-01-01 00:00:00 +0000 UTC"
		if !c.Started.IsZero() {
			started = c.Started.UTC().String()
		}
		line := strings.NewReplacer(
			"{{.Id}}", c.ID, "{{.Name}}", c.Name, "{{.State.Status}}", c.Status, "{{.State.ExitCode}}", strconv.Itoa(c.Exit), "{{.State.OOMKilled}}", "false",
			"{{.State.StartedAt}}", started, "{{.Config.Hostname}}", c.Hostname, "{{json .State.Error}}", `""`,
		).Replace(format)
		if strings.Contains(line, "{{") {
			return fmt.Errorf("the simulated podman does not know the format %s", line)
		}
		fmt.Println(line)
	}
	return missing
}

// signalPID signals a process if it is still that of an identity.
func signalPID(pid int, identity string, sig syscall.Signal) {
	if pid > 1 && identity != "" && descendants.Identity(pid) == identity {
		_ = syscall.Kill(pid, sig) // fails if it has just ended
	}
}

func (s *service) kill(name, signal string) error {
	c, err := s.find(name)
	switch {
	case err != nil:
		return err
	case c.Status != "running":
		return fmt.Errorf("can only kill running containers. %s is in state %s: container state improper", c.ID, c.Status)
	case signal == "KILL":
		signalPID(c.PID, c.Identity, syscall.SIGKILL)
	case signal == "TERM":
		signalPID(c.PID, c.Identity, syscall.SIGTERM)
	default:
		return fmt.Errorf("invalid signal: %s", signal)
	}
	fmt.Println(name)
	return nil
}

// stop ends a container and waits for its end.
func (s *service) stop(name, seconds string) error {
	wait, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	c, err := s.find(name)
	if err != nil {
		return err
	}
	signalPID(c.PID, c.Identity, syscall.SIGTERM)
	for killAt := time.Now().Add(time.Duration(wait) * time.Second); err == nil && c.Status == "running"; c, err = s.find(name) {
		if time.Now().After(killAt) {
			signalPID(c.PID, c.Identity, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

func (s *service) remove(name string, force bool) error {
	c, err := s.find(name)
	if err != nil {
		return err
	}
	if c.Status == "running" && !force {
		return &exitError{2, fmt.Sprintf("cannot remove container %s as it is running - running or paused containers cannot be removed without force: container state improper", c.ID)}
	}
	if c.Status == "running" {
		if err := s.stop(name, "0"); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.path(c.Name, ""))
}

// logs copies what a container has written, with follow until it has ended.
func (s *service) logs(name string, follow bool, stdout, stderr io.Writer) error {
	c, err := s.find(name)
	var read [2]int64
	for err == nil {
		for i, to := range []io.Writer{stdout, stderr} {
			var copyErr error
			read[i], copyErr = copyFrom(s.path(c.Name, []string{"stdout", "stderr"}[i]), read[i], to)
			if copyErr != nil && !errors.Is(copyErr, os.ErrNotExist) {
				return copyErr
			}
		}
		if !follow || c.Status == "exited" {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
		c, err = s.find(c.ID)
	}
	return err
}

// KillAll ends all containers of a state directory.
func KillAll(dir string) error {
	s, err := open(dir)
	if err != nil {
		return err
	}
	all, err := s.all()
	for _, c := range all {
		for deadline := time.Now().Add(time.Minute); descendants.Identity(c.Conmon) == c.ConmonIdentity && c.ConmonIdentity != ""; time.Sleep(5 * time.Millisecond) {
			signalPID(c.Conmon, c.ConmonIdentity, syscall.SIGQUIT)
			if time.Now().After(deadline) {
				return fmt.Errorf("the supervisor of container %s did not end", c.Name)
			}
		}
	}
	return err
}
