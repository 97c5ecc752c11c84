package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// mountName is the argv[0] of a process that mounts something and then becomes another program. Its other arguments are the
// descriptor of the mount, the path to mount it at, the path of the program, and the argv of that.
const mountName = "git-agency-mount"

func init() {
	if len(os.Args) > 4 && os.Args[0] == mountName {
		err := mountAndExec(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
		_, _ = unix.Write(unix.Stderr, []byte("fatal: "+err.Error()+"\n"))
		os.Exit(mountFailed)
	}
}

// mountFailed is the exit code of a process that could not mount. No git ends with it.
const mountFailed = 125

// mountAndExec mounts and executes the program. It returns only after an error.
func mountAndExec(mount, path, program string, argv []string) error {
	fd, err := strconv.Atoi(mount)
	if err != nil {
		return err
	}
	dir, err := os.Getwd() // it may be below the new mount
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	return &os.PathError{Op: "execute", Path: program, Err: unix.Exec(program, argv, os.Environ())}
}

// applyMount makes a program start in namespaces of its own in which the mount exists. User and group ids stay the same.
func (m *Mount) applyMount(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	cmd.Args = append([]string{mountName, strconv.Itoa(3 + len(cmd.ExtraFiles)), m.Path, cmd.Path}, cmd.Args...)
	cmd.ExtraFiles = append(cmd.ExtraFiles[:len(cmd.ExtraFiles):len(cmd.ExtraFiles)], m.File)
	cmd.Path = selfExe()
	attr := Walls{}.sysProcAttr()
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = attr.UidMappings, attr.GidMappings
	cmd.SysProcAttr.GidMappingsEnableSetgroups = attr.GidMappingsEnableSetgroups
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	return nil
}

// CloneMount returns a copy of the mount at a path in the namespace, without what is mounted below it, for a program outside:
// see Mount.
func (r *Namespace) CloneMount(ctx context.Context, path string) (*os.File, error) {
	return r.requestFD(ctx, initRequest{CloneMount: path}, path)
}
