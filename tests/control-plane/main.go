// Command control-plane holds a whole Kubernetes control plane in one binary.
//
// The first argument, or the name it was called by, picks the program: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are the
// real ones, imported as ordinary modules; supervise (see supervise.go) starts
// and ends the processes of one plane.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, wherever the tests run

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs maps a sub-command to what it runs; each returns the exit code.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"supervise":               func() int { return supervise(os.Args[1:]) },
}

func main() {
	program, found := programs[filepath.Base(os.Args[0])]
	if !found {
		if len(os.Args) > 1 {
			program, found = programs[os.Args[1]]
		}
		if !found {
			usage()
			os.Exit(2)
		}
		// Each program reads os.Args itself and must find its own name first.
		os.Args = os.Args[1:]
	}
	os.Exit(program())
}

func usage() {
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: control-plane {%s} [arguments]\n", strings.Join(names, "|"))
}

func runKubectl() int {
	// kubectl logs while it builds its command, before flags are parsed.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
