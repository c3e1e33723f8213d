package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The supervisor owns the processes and the folder of one plane. It reads one
// JSON command a line from standard input and answers each with one JSON line
// on standard output; the end of a child is told by a line of its own. When
// standard input closes, whatever ended its owner (a return, a panic, SIGINT,
// SIGKILL), every child is killed and the folder removed. The first line it
// prints is the number of the plane's network, which is the plane's alone until
// the supervisor ends: 127.77.N.0/24 for Services, 127.78.N.0/24 for processes.
//
//	{"id":1,"op":"start","name":"etcd","argv":["/bin/etcd"],"env":["K=V"],"log":"/x/etcd.log","dir":"/x"}
//	{"id":2,"op":"signal","name":"etcd","signal":"STOP"}
//	{"id":3,"op":"keep"}      leave the folder
//	{"id":4,"op":"detach"}    outlive standard input, until SIGTERM or SIGINT
//
//	{"network":17}
//	{"id":1,"pid":4711}
//	{"id":2,"error":"no running child is named etcd"}
//	{"exit":"etcd","pid":4711,"code":0,"signal":"killed"}

// command is one line of standard input.
type command struct {
	ID     uint64   `json:"id"`
	Op     string   `json:"op"`
	Name   string   `json:"name"`
	Argv   []string `json:"argv"`
	Env    []string `json:"env"`
	Dir    string   `json:"dir"`
	Log    string   `json:"log"`
	Signal string   `json:"signal"`
}

// reply answers the command with the same id.
type reply struct {
	ID    uint64 `json:"id"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// exit tells that a child is gone: its exit code, or the signal that ended it.
type exit struct {
	Exit   string `json:"exit"`
	PID    int    `json:"pid"`
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}

// child is a running process, the leader of its own process group.
type child struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

type ended struct {
	name  string
	child *child
}

// network is the first line of standard output.
type network struct {
	Network int `json:"network"`
}

type supervisor struct {
	root     string
	keep     bool
	detached bool
	children map[string]*child
	ended    chan ended
	out      chan any
}

var signals = map[string]syscall.Signal{
	"HUP":  syscall.SIGHUP,
	"INT":  syscall.SIGINT,
	"TERM": syscall.SIGTERM,
	"KILL": syscall.SIGKILL,
	"STOP": syscall.SIGSTOP,
	"CONT": syscall.SIGCONT,
	"USR1": syscall.SIGUSR1,
}

// A parent-death signal is sent when the thread that forked ends. The main
// goroutine is locked to the main thread, which lives as long as the process.
func init() { runtime.LockOSThread() }

func supervise(args []string) int {
	flags := flag.NewFlagSet("supervise", flag.ExitOnError)
	root := flags.String("root", "", "folder of the plane, removed at the end")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *root == "" {
		fmt.Fprintln(os.Stderr, "supervise: --root is required")
		return 2
	}
	lock, number, err := claimNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return 1
	}
	defer lock.Close()
	// The owner may be gone when an answer is written.
	signal.Ignore(syscall.SIGPIPE)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	s := &supervisor{
		root:     *root,
		children: map[string]*child{},
		ended:    make(chan ended),
		out:      make(chan any, 4096),
	}
	s.out <- network{Network: number}
	go writeLines(os.Stdout, s.out)
	commands := make(chan command)
	go readLines(os.Stdin, commands, s.out)
	s.run(commands, interrupts)
	if err := s.cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return 1
	}
	return 0
}

// claimNetwork takes a network that no other plane on this machine uses. The
// listener is the lock: the kernel lets go of it when the supervisor ends.
func claimNetwork() (net.Listener, int, error) {
	const networks = 250
	var last error
	for i := range networks {
		number := 1 + (os.Getpid()+i)%networks
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.78.%d.1:1077", number))
		if err == nil {
			return listener, number, nil
		}
		last = err
	}
	return nil, 0, fmt.Errorf("no free network for a plane: %w", last)
}

func readLines(from io.Reader, commands chan<- command, out chan<- any) {
	defer close(commands)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			out <- reply{ID: c.ID, Error: "unreadable command: " + err.Error()}
			continue
		}
		commands <- c
	}
}

func writeLines(to io.Writer, lines <-chan any) {
	encoder := json.NewEncoder(to)
	for line := range lines {
		// Without a reader there is nobody to tell; the children matter more.
		_ = encoder.Encode(line)
	}
}

func (s *supervisor) run(commands <-chan command, interrupts <-chan os.Signal) {
	for {
		select {
		case c, open := <-commands:
			if !open {
				if !s.detached {
					return
				}
				commands = nil
				continue
			}
			pid, err := s.obey(c)
			r := reply{ID: c.ID, PID: pid}
			if err != nil {
				r.Error = err.Error()
			}
			s.out <- r
		case e := <-s.ended:
			s.report(e)
		case <-interrupts:
			return
		}
	}
}

func (s *supervisor) obey(c command) (int, error) {
	switch c.Op {
	case "start":
		return s.start(c)
	case "signal":
		return s.signal(c)
	case "keep":
		s.keep = true
		return 0, nil
	case "detach":
		s.detached = true
		return os.Getpid(), nil
	default:
		return 0, fmt.Errorf("unknown operation %q", c.Op)
	}
}

func (s *supervisor) start(c command) (int, error) {
	if _, running := s.children[c.Name]; running {
		return 0, fmt.Errorf("%s runs already", c.Name)
	}
	if c.Name == "" || len(c.Argv) == 0 {
		return 0, errors.New("a child needs a name and argv")
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = s.root
	if c.Dir != "" {
		cmd.Dir = c.Dir
	}
	if c.Log != "" {
		log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return 0, err
		}
		defer log.Close()
		cmd.Stdout = log
		cmd.Stderr = log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ch := &child{cmd: cmd, gone: make(chan struct{})}
	s.children[c.Name] = ch
	go func() {
		// The exit status is read from ProcessState.
		_ = cmd.Wait()
		close(ch.gone)
		s.ended <- ended{name: c.Name, child: ch}
	}()
	return cmd.Process.Pid, nil
}

func (s *supervisor) signal(c command) (int, error) {
	ch, running := s.children[c.Name]
	if !running {
		return 0, fmt.Errorf("no running child is named %s", c.Name)
	}
	number, known := signals[strings.TrimPrefix(c.Signal, "SIG")]
	if !known {
		return 0, fmt.Errorf("unknown signal %q", c.Signal)
	}
	pid := ch.cmd.Process.Pid
	return pid, syscall.Kill(-pid, number)
}

func (s *supervisor) report(e ended) {
	if s.children[e.name] == e.child {
		delete(s.children, e.name)
	}
	state := e.child.cmd.ProcessState
	notice := exit{Exit: e.name, PID: state.Pid(), Code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		notice.Signal = status.Signal().String()
	}
	s.out <- notice
}

func (s *supervisor) cleanUp() error {
	for _, ch := range s.children {
		_ = syscall.Kill(-ch.cmd.Process.Pid, syscall.SIGKILL)
	}
	deadline := time.After(10 * time.Second)
	var errs []error
	for name, ch := range s.children {
		// Each waiting goroutine closes gone before it reports.
		select {
		case <-ch.gone:
		case <-deadline:
			errs = append(errs, fmt.Errorf("%s does not end", name))
		}
	}
	if s.keep {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, os.RemoveAll(s.root))...)
}
