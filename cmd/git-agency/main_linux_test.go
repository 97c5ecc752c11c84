package main

func addPlatformCommands(commands map[string]func()) {
	commands["killat"] = killatMain
	commands["escapist"] = escapistMain
	commands["listener"] = listenerMain
}
