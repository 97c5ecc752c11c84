package program

import (
	"bufio"
	"sync"
)

// NeverPage makes results go to standard output without a pager, whatever is configured: for a command that reads answers
// from the terminal.
func (p *Program) NeverPage() { p.unpaged = true }

// RunPart runs a part of a command that reads answers from the terminal, as if args had been typed after "git agency": its
// error is reported like that of this command line, with the same hints. With paged, its results have a pager of their
// own, and RunPart returns when the user has left it. It returns the exit code.
func (p *Program) RunPart(args []string, paged bool, action func() error) int {
	outer := *p
	defer func() {
		p.Args, p.Stdout, p.Stderr, p.pager = outer.Args, outer.Stdout, outer.Stderr, outer.pager
		p.pageable, p.unpaged, p.outputStyle = outer.pageable, outer.unpaged, outer.outputStyle
	}()
	p.Args = append([]string{outer.Args[0]}, args...)
	p.pageable, p.unpaged = paged, !paged
	p.pager = newPagerWriter(p)
	p.Stdout = bufio.NewWriter(p.pager)
	p.outputStyle = sync.OnceValues(p.decideStyle)
	err := action()
	if flushErr := p.Stdout.Flush(); flushErr != nil && err == nil {
		err = flushErr
	}
	return p.pager.finish(p.ctx, p.reportError(p.WithArgv(err)))
}
