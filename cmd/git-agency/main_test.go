package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/git-agency/git-agency/gitagency"
)

// TestMain makes this test binary run as git-agency when it is called by that name, so that git finds and runs it for
// "git agency …" in a script. The other names are helper commands of the scripts.
func TestMain(m *testing.M) {
	commands := map[string]func(){
		"git-agency": func() { os.Exit(mainWithOptions(os.Args, testOptions())) },
		"net":        netMain,
	}
	addPlatformCommands(commands)
	if commands[filepath.Base(os.Args[0])] == nil { // the tests themselves
		// Handling SIGHUP keeps commands from inheriting it as ignored, as under nohup.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT} { // ignored by a shell that runs "make test &"
			if signal.Ignored(sig) {
				signal.Notify(make(chan os.Signal, 1), sig)
			}
		}
		// Most tests wait for the disk. A -parallel flag is parsed later and overrides this.
		if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	testscript.Main(m, commands)
}

// testOptions returns options that make a run repeatable (TEST_NOW, TEST_RAND) or make it fail (TEST_FAULT). Only the
// test binary reads these variables.
func testOptions() gitagency.Options {
	var opts gitagency.Options
	if now, err := time.Parse(time.RFC3339, os.Getenv("TEST_NOW")); err == nil {
		opts.Now = func() time.Time { return now }
	}
	if digits := os.Getenv("TEST_RAND"); digits != "" {
		opts.Rand = repeatReader(digits)
	}
	// TEST_FAULT is "<verb>/<step>:before=fail", "…:after=kill" or the like. TEST_STEPS names a file to which every fault
	// point is appended when the command reaches it.
	point, action, _ := strings.Cut(os.Getenv("TEST_FAULT"), "=")
	steps := os.Getenv("TEST_STEPS")
	if point == "" && steps == "" {
		return opts
	}
	opts.Fault = func(ctx context.Context, at string) error {
		if steps != "" {
			f, err := os.OpenFile(steps, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			_, err = f.WriteString(at + "\n")
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
		if at != point {
			return nil
		}
		switch action {
		case "fail":
			return errors.New("failed on purpose at " + at)
		case "kill":
			return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("not dead"))
		case "int", "term", "hup":
			sig := map[string]syscall.Signal{"int": syscall.SIGINT, "term": syscall.SIGTERM, "hup": syscall.SIGHUP}[action]
			if err := syscall.Kill(os.Getpid(), sig); err != nil {
				return err
			}
			if done := ctx.Done(); done != nil { // nil when the context cannot be cancelled
				<-done
			}
			return nil
		case "wait":
			// Create the file TEST_WAIT and continue when that file is removed or the command is interrupted.
			name := os.Getenv("TEST_WAIT")
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
			for {
				if _, err := os.Stat(name); os.IsNotExist(err) || ctx.Err() != nil {
					return nil
				}
				time.Sleep(time.Millisecond)
			}
		}
		return errors.New("TEST_FAULT: unknown action " + action)
	}
	return opts
}

// repeatReader is a source of randomness that repeats the same bytes.
type repeatReader string

func (r repeatReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r[i%len(r)]
	}
	return len(p), nil
}
