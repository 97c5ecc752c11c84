package confine

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1": 1, "1048576": 1 << 20, "4k": 4096, "4K": 4096, "512m": 512 << 20, "512MiB": 512 << 20, "512mb": 512 << 20,
		"2g": 2 << 30, "1.5GiB": 3 << 29, "0.5k": 512, "1t": 1 << 40, "100b": 100, "9223372036854775807": math.MaxInt64,
		"0.1k": 102, "007": 7, "1.0": 1, "8388607.999999999999999999t": math.MaxInt64, "0.000000000000909495t": 1,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "0m", "-1", "-1m", "+1", "m", "1x", "1mm", "1kib2", "1 m", " 1", "1.5", "1..5k", ".5k", "5.k", "1e9", "0x10",
		"9223372036854775808", "8388608t", "99999999999999999999999999999999999t", "1ib", "1i", "max", "none", "1.0000000000000000001k", "0.0001k", "1_000", "١k",
	} {
		if got, err := ParseSize(text); !errors.Is(err, ErrSize) {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"512m", "1.5GiB", "0", "9223372036854775807", "-1", "8388607.999999999999999999t", "0.7k"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		number := strings.TrimRight(strings.ToLower(text), "kmgtib")
		exact, _ := new(big.Rat).SetString(number)
		if unit := strings.TrimLeft(text, "0123456789."); unit != "" {
			power := strings.IndexByte("bkmgt", strings.ToLower(unit)[0])
			exact.Mul(exact, new(big.Rat).SetInt64(1<<(10*power)))
		}
		if want := new(big.Int).Quo(exact.Num(), exact.Denom()); !want.IsInt64() || want.Int64() != size {
			t.Errorf("%q is %d, want %s", text, size, want)
		}
		if again, err := ParseSize(FormatSize(size)); size <= 0 || err != nil || again != size {
			t.Errorf("%q is %d, which is written %q and read as %d, %v", text, size, FormatSize(size), again, err)
		}
	})
}

func TestCheckWithinRefusesWiderLimits(t *testing.T) {
	t.Parallel()
	recorded := Limits{Memory: 512 << 20, Processes: 64, FileSize: 1 << 30, Timeout: time.Hour, Nice: 5}
	for name, c := range map[string]struct {
		asked Limits
		wider string // WiderError.Want; empty: allowed
	}{
		"nothing":            {Limits{}, ""},
		"the same":           {recorded, ""},
		"less of everything": {Limits{Memory: 1, Processes: 1, FileSize: 1, Timeout: 1, Nice: 19}, ""},
		"more memory":        {Limits{Memory: 1 << 30}, "at most 512MiB"},
		"more processes":     {Limits{Processes: 65}, "at most 64"},
		"larger files":       {Limits{FileSize: 1<<30 + 1}, "at most 1GiB"},
		"more time":          {Limits{Timeout: 2 * time.Hour}, "at most 1h0m0s"},
		"no timeout":         {Limits{Timeout: -1}, "at most 1h0m0s"},
		"a lower nice value": {Limits{Nice: 4}, "at least 5"},
		"best effort":        {Limits{Memory: 1, BestEffort: true}, ""},
	} {
		err := c.asked.CheckWithin(recorded)
		var wider *WiderError
		if c.wider == "" && err != nil || c.wider != "" && (!errors.As(err, &wider) || wider.Want() != c.wider) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := c.asked.CheckWithin(Limits{}); err != nil {
			t.Errorf("%s, without recorded limits: %v", name, err)
		}
	}
	got := recorded.NarrowedBy(Limits{Memory: 1 << 20, Nice: 10})
	if want := (Limits{Memory: 1 << 20, Processes: 64, FileSize: 1 << 30, Timeout: time.Hour, Nice: 10}); got != want {
		t.Errorf("got %+v", got)
	}
}

var (
	errNoCgroup   = errors.New("no cgroup")
	errNoRlimit   = errors.New("no rlimits")
	errNotCounted = errors.New("not counted")
)

func TestLimitsPlanPicksBestEnforcer(t *testing.T) {
	t.Parallel()
	all := Limits{Memory: 1 << 30, Processes: 10, FileSize: 1 << 20, Timeout: time.Minute, Nice: 3}
	for name, c := range map[string]struct {
		machine LimitSupport
		by      string // enforcers with best effort, in the order of LimitKinds; "!" marks a limit refused without best effort
		plan    LimitPlan
	}{
		"with cgroups": {
			LimitSupport{ProcessRlimit: errNotCounted},
			"cgroup cgroup rlimit supervisor supervisor",
			LimitPlan{CgroupMemory: 1 << 30, CgroupProcesses: 10, FileSize: 1 << 20, Nice: 3, Timeout: time.Minute},
		},
		"an ordinary user without cgroups": {
			LimitSupport{MemoryCgroup: errNoCgroup, ProcessCgroup: errNoCgroup},
			"!rlimit rlimit rlimit supervisor supervisor",
			LimitPlan{Data: 1 << 30, Processes: 10, FileSize: 1 << 20, Nice: 3, Timeout: time.Minute},
		},
		"root without cgroups": {
			LimitSupport{MemoryCgroup: errNoCgroup, ProcessCgroup: errNoCgroup, ProcessRlimit: errNotCounted},
			"!rlimit !not enforced rlimit supervisor supervisor",
			LimitPlan{Data: 1 << 30, FileSize: 1 << 20, Nice: 3, Timeout: time.Minute},
		},
		"only a memory cgroup": {
			LimitSupport{ProcessCgroup: errNoCgroup},
			"cgroup rlimit rlimit supervisor supervisor",
			LimitPlan{CgroupMemory: 1 << 30, Processes: 10, FileSize: 1 << 20, Nice: 3, Timeout: time.Minute},
		},
		"no support": {
			LimitSupport{errNoCgroup, errNoCgroup, errNoRlimit, errNotCounted},
			"!not enforced !not enforced !not enforced supervisor !not enforced",
			LimitPlan{Timeout: time.Minute},
		},
	} {
		lenient := all
		lenient.BestEffort = true
		plan, err := lenient.Plan(c.machine)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var by []string
		refused := 0
		for _, e := range plan.Enforced {
			mark := ""
			if e.Detail != "" {
				mark = "!"
				refused++
			}
			by = append(by, mark+string(e.By))
		}
		if got := strings.Join(by, " "); got != c.by {
			t.Errorf("%s: enforced by %q", name, got)
		}
		plan.Enforced = nil
		if got, want := planText(plan), planText(c.plan); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		_, err = all.Plan(c.machine)
		var unenforceable *UnenforceableError
		if refused > 0 && (!errors.As(err, &unenforceable) || len(unenforceable.Limits) != refused) || refused == 0 && err != nil {
			t.Errorf("%s, without best effort: %v", name, err)
		}
	}
}

// planText formats a plan without its Enforced field.
func planText(p LimitPlan) string {
	p.Enforced = nil
	return fmt.Sprintf("%+v", p)
}

func TestCommandBestEffortDoesNotLoosenSandboxLimits(t *testing.T) {
	t.Parallel()
	machine := LimitSupport{MemoryCgroup: errNoCgroup, ProcessCgroup: errNoCgroup, ProcessRlimit: errNotCounted}
	asked := Limits{Memory: 1 << 20, Processes: 5, BestEffort: true}
	if _, err := (Limits{}).NarrowedBy(asked).Plan(machine); err != nil {
		t.Errorf("the command's limits: %v", err)
	}
	_, err := Limits{Memory: 1 << 30}.NarrowedBy(asked).Plan(machine)
	var unenforceable *UnenforceableError
	if !errors.As(err, &unenforceable) || len(unenforceable.Limits) != 1 || unenforceable.Limits[0].Limit != MemoryLimit {
		t.Errorf("the sandbox's limits: %v", err)
	}
	if _, err := (Limits{Memory: 1 << 30, BestEffort: true}).NarrowedBy(Limits{Processes: 5}).Plan(machine); err != nil {
		t.Errorf("a sandbox created with best effort: %v", err)
	}
}

func TestLimitsPlanRefusesInvalidLimits(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{{Memory: -1}, {Processes: -1}, {FileSize: -1}, {Nice: -1}, {Nice: 20}, {Timeout: -1}} {
		var bad *BadLimitError
		if _, err := l.Plan(LimitSupport{}); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
