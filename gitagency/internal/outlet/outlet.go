// Package outlet owns the way out of a sandbox whose outputs are a list of hosts, and the way in that a person
// opens to one of its ports.
//
// The way out is a proxy for HTTP, CONNECT and SOCKS5 on one listener, which the sandbox reaches and which is served
// outside of it. It decides on the host and the port that were asked for, before anything is looked up; then it looks
// the name up once, judges every answer, and connects to exactly the addresses it judged. What it refuses it says to
// the program that asked, and to whoever keeps the record.
//
// What goes through an allowed connection is not looked into: a program that may reach a host over TLS may name
// another one in its handshake, and a server that serves both will answer for the other ("fronting"). Who lists a host
// trusts whoever answers there.
//
// The package must never look up or connect to anything that was not allowed first, never connect by name, never
// trust one byte from inside, never hold more of a stream than a buffer, and never leave a connection open
// when its context has ended.
package outlet
