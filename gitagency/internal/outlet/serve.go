package outlet

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// serveConns handles the connections of a listener, at most so many at once; further ones wait to be accepted. It
// returns when ctx has ended or the listener is closed, after closing the listener and all connections and waiting for
// all handlers.
func serveConns(ctx context.Context, l net.Listener, limit int, handle func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer cancel()
	defer l.Close()
	defer onCancel(ctx, func() { l.Close() })()

	slots := make(chan struct{}, limit)
	pause := time.Millisecond
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case isTemporary(err):
			<-slots
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		default:
			return err
		}
		handlers.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer onCancel(ctx, func() { conn.Close() })()
			handle(ctx, conn)
		})
	}
}

// onCancel calls act when ctx ends. The returned function cancels that, or waits until act has returned: act does not
// run after it.
func onCancel(ctx context.Context, act func()) (stop func()) {
	done := make(chan struct{})
	takeBack := context.AfterFunc(ctx, func() {
		defer close(done)
		act()
	})
	return func() {
		if !takeBack() {
			<-done
		}
	}
}

// isTemporary reports whether Accept failed for a reason that goes away: the peer gave up, or the machine lacks a
// resource at the moment.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EINTR, syscall.EPROTO,
	}, func(e error) bool { return errors.Is(err, e) })
}
