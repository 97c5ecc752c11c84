// Package outlet owns the outgoing connections of a sandbox whose outputs are a list of hosts, and the incoming
// connections that a user forwards to one of its ports.
//
// Outgoing connections use a proxy for HTTP, CONNECT and SOCKS5 on one listener, which the sandbox reaches and which is
// served outside of it. It decides on the requested host and port before anything is looked up; then it resolves the
// name once, checks every address, and connects to exactly the addresses it checked. It reports a refusal to the client
// and to the denial callback.
//
// Listed ports of the loopback of this machine are also relayed, by one process for all commands of a sandbox.
//
// Data on an allowed connection is not inspected: a program that may reach a host over TLS may name another host in its
// handshake, and a server that serves both will answer for the other ("domain fronting"). A user who lists a host trusts
// every server at its address.
//
// The package must never resolve or connect to anything that was not allowed first, never connect by name, never
// trust input from the sandbox, never buffer more of a stream than a fixed buffer, and never leave a connection open
// when its context has ended.
package outlet
