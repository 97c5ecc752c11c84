package outlet

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestDenialLogCountsEqualDenials: a program that retries forever must not fill the disk; the log reports growing counts.
func TestDenialLogCountsEqualDenials(t *testing.T) {
	t.Parallel()
	var reported []Denial
	l := denialLog{report: func(d Denial) { reported = append(reported, d) }} // no lock: report is never called concurrently
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 1234 {
				l.record(Denial{Kind: KindHTTP, Target: "a.example:80"})
			}
		})
	}
	all.Wait()
	l.record(Denial{Kind: KindSOCKS, Target: "a.example:80"})
	l.reportTotals()
	var counts []int
	for _, d := range reported {
		if d.Kind == KindHTTP {
			counts = append(counts, d.Count)
		}
	}
	if want := []int{1, 10, 100, 1000, 10000, 12340}; !slices.Equal(counts, want) || len(reported) != len(want)+1 {
		t.Errorf("reported %v", reported)
	}
}

func TestDenialLogMergesExcessTargets(t *testing.T) {
	t.Parallel()
	var reported []Denial
	l := denialLog{report: func(d Denial) { reported = append(reported, d) }}
	for i := range 50_000 {
		l.record(Denial{Kind: KindConnect, Target: fmt.Sprint("x", i, ".example:443"), AllowEntry: "x"})
	}
	l.reportTotals()
	if len(reported) > maxTargets+10 || len(l.counts) > maxTargets+10 {
		t.Errorf("%d reports, %d counts kept", len(reported), len(l.counts))
	}
	last := reported[len(reported)-1]
	if last.Target != otherTargets || last.AllowEntry != "" || last.Count != 50_000-maxTargets {
		t.Errorf("the last is %+v", last)
	}
}

func TestServeReportsDenialTotalsAtEnd(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example").serve()
	for range 3 {
		w.exchange("GET http://b.example/ HTTP/1.1\r\n\r\n")
	}
	if got := w.denials(); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("while it serves: %v", got)
	}
	w.stop()
	if got := w.denials(); len(got) != 2 || got[1].Count != 3 {
		t.Errorf("when it ended: %v", got)
	}
}
