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

// TestMain makes this test binary answer to the name git-agency too, so that "git agency …" in a
// script runs the real thing, found by git itself.
func TestMain(m *testing.M) {
	commands := map[string]func(){
		"git-agency": func() { os.Exit(run(os.Args, testOptions())) },
		"net":        netMain,
	}
	addPlatformCommands(commands)
	if commands[filepath.Base(os.Args[0])] == nil { // the tests themselves, from which no command shall inherit nohup
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT} { // nor what a shell does for "make test &"
			if signal.Ignored(sig) {
				signal.Notify(make(chan os.Signal, 1), sig)
			}
		}
		// Most of them wait for the disk most of the time. Who says -parallel is asked after this.
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	testscript.Main(m, commands)
}

// testOptions fills the options that make a run repeatable or make it fail. Only this binary reads
// these variables.
func testOptions() gitagency.Options {
	var opts gitagency.Options
	if now, err := time.Parse(time.RFC3339, os.Getenv("TEST_NOW")); err == nil {
		opts.Now = func() time.Time { return now }
	}
	if digits := os.Getenv("TEST_RAND"); digits != "" {
		opts.Rand = repeat(digits)
	}
	// TEST_FAULT is "<verb>/<step>:before=fail", "…:after=kill" or the like; TEST_STEPS a file that
	// learns every point that is passed.
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
			if done := ctx.Done(); done != nil { // else nothing stops it any more
				<-done
			}
			return nil
		case "wait":
			// Says that it is here, and goes on when the file it made is gone or it is interrupted.
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

// repeat is a source of randomness that always says the same.
type repeat string

func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r[i%len(r)]
	}
	return len(p), nil
}
