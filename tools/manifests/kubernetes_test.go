package manifests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/sharding"
)

const folder = "../../deploy/kubernetes"

// decodeManifests decodes the objects of a file into the types of their APIs. An unknown field, or
// a field that occurs twice, is an error.
func decodeManifests(text []byte) ([]meta.Object, error) {
	var out []meta.Object
	for r := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		part, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var kind meta.TypeMeta
		if err == nil {
			err = yaml.Unmarshal(part, &kind)
		}
		if err != nil {
			return nil, err
		}
		into := map[string]meta.Object{
			"apps/v1 Deployment": &apps.Deployment{}, "apps/v1 StatefulSet": &apps.StatefulSet{},
			"v1 ConfigMap": &core1.ConfigMap{}, "v1 Service": &core1.Service{}, "v1 ServiceAccount": &core1.ServiceAccount{},
			"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
			"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
			"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		}[kind.APIVersion+" "+kind.Kind]
		if into == nil {
			return nil, fmt.Errorf("no type is known for %s %s", kind.APIVersion, kind.Kind)
		}
		part, err = yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, err
		}
		strict, err := kjson.UnmarshalStrict(part, into) // case-sensitive, like the API server
		if err := errors.Join(append(strict, err)...); err != nil {
			return nil, err
		}
		if errs := validation.ValidateLabels(into.GetLabels(), field.NewPath("metadata", "labels")); into.GetName() == "" || len(errs) > 0 {
			return nil, fmt.Errorf("%s %q: it has no name, or bad labels: %v", kind.Kind, into.GetName(), errs)
		}
		out = append(out, into)
	}
}

// set contains all manifests.
type set struct {
	*testing.T
	objects []meta.Object
}

func manifests(t *testing.T) *set {
	t.Helper()
	s := &set{T: t}
	files, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifest in %s (%v)", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := decodeManifests(text)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		s.objects = append(s.objects, objects...)
	}
	return s
}

// all returns the objects of one type.
func all[T meta.Object](s *set) []T {
	var out []T
	for _, o := range s.objects {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

// A workload is an object that starts pods.
type workload struct {
	name     string
	selector *meta.LabelSelector
	pod      core1.PodTemplateSpec
	member   bool // runs Tenure in its process
}

func (s *set) workloads() []workload {
	var out []workload
	for _, d := range all[*apps.Deployment](s) {
		out = append(out, workload{"Deployment " + d.Name, d.Spec.Selector, d.Spec.Template, d.Name == "orders"})
	}
	for _, d := range all[*apps.StatefulSet](s) {
		out = append(out, workload{"StatefulSet " + d.Name, d.Spec.Selector, d.Spec.Template, true})
	}
	if len(out) != 3 {
		s.Fatalf("%d workloads, want 3", len(out))
	}
	return out
}

func selects(t *testing.T, s *meta.LabelSelector, l map[string]string) bool {
	t.Helper()
	sel, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return !sel.Empty() && sel.Matches(labels.Set(l))
}

// TestManifests: the manifests decode strictly, and everything that they name exists.
func TestManifests(t *testing.T) {
	t.Parallel()
	s := manifests(t)
	named := map[string]bool{"Secret orders-store": true} // made by hand
	for _, o := range s.objects {
		named[strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")+" "+o.GetName()] = true
	}
	for _, w := range s.workloads() {
		spec := w.pod.Spec
		if !selects(t, w.selector, w.pod.Labels) {
			t.Errorf("%s does not select its own pods", w.name)
		}
		if !named["ServiceAccount "+spec.ServiceAccountName] || spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			t.Errorf("%s: the account %q is missing, or its token is mounted", w.name, spec.ServiceAccountName)
		}
		if c := spec.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil {
			t.Errorf("%s may run as root, or without seccomp", w.name)
		}
		volumes := map[string]bool{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil && !named["ConfigMap "+v.ConfigMap.Name] || v.Secret != nil && !named["Secret "+v.Secret.SecretName] {
				t.Errorf("%s: what volume %s names is not there", w.name, v.Name)
			}
		}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			x := c.SecurityContext
			if x == nil || x.AllowPrivilegeEscalation == nil || *x.AllowPrivilegeEscalation || x.ReadOnlyRootFilesystem == nil ||
				!*x.ReadOnlyRootFilesystem || x.Capabilities == nil || !slices.Equal(x.Capabilities.Drop, []core1.Capability{"ALL"}) {
				t.Errorf("%s: container %s has more rights than it needs", w.name, c.Name)
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: container %s mounts %s, which is not there", w.name, c.Name, m.Name)
				}
			}
			for _, p := range []*core1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if w.member && (p == nil || p.HTTPGet == nil || !hasPort(c.Ports, p.HTTPGet.Port)) {
					t.Errorf("%s: a probe of container %s is missing, or asks a port that it does not have", w.name, c.Name)
				}
			}
		}
	}
	for _, b := range all[*policy.PodDisruptionBudget](s) {
		for _, w := range s.workloads() {
			if selects(t, b.Spec.Selector, w.pod.Labels) != w.member {
				t.Errorf("PodDisruptionBudget %s and the pods of %s: want that it selects members", b.Name, w.name)
			}
		}
	}
	for _, m := range all[*monitoring.ServiceMonitor](s) {
		found := 0
		for _, v := range all[*core1.Service](s) {
			if selects(t, &m.Spec.Selector, v.Labels) && slices.ContainsFunc(v.Spec.Ports, func(p core1.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("ServiceMonitor %s finds %d services, want one: a second would count each pod twice", m.Name, found)
		}
	}
	for _, d := range all[*apps.StatefulSet](s) {
		if !named["Service "+d.Spec.ServiceName] {
			t.Errorf("StatefulSet %s: the service %q is not there", d.Name, d.Spec.ServiceName)
		}
	}
	if kinds := len(maps.Clone(named)); kinds < 9 {
		t.Errorf("%d objects, want all kinds", kinds)
	}
}

func hasPort(ports []core1.ContainerPort, p intstr.IntOrString) bool {
	return slices.ContainsFunc(ports, func(c core1.ContainerPort) bool { return c.Name == p.String() || c.ContainerPort == p.IntVal })
}

// TestNetwork: the board and the metrics are on a separate port, which only operators can reach.
// Each pod accepts only connections that a policy allows.
func TestNetwork(t *testing.T) {
	t.Parallel()
	s := manifests(t)
	for _, w := range s.workloads() {
		var ports []core1.ContainerPort
		for _, c := range w.pod.Spec.Containers {
			ports = append(ports, c.Ports...)
			for _, p := range []*core1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if w.member && p.HTTPGet.Port.String() != "ops" {
					t.Errorf("%s: a probe asks the port of requests", w.name)
				}
			}
		}
		found := 0
		for _, p := range all[*networking.NetworkPolicy](s) {
			if !selects(t, &p.Spec.PodSelector, w.pod.Labels) {
				continue
			}
			if found++; len(p.Spec.PolicyTypes) != 2 {
				t.Errorf("NetworkPolicy %s leaves a direction open: %v", p.Name, p.Spec.PolicyTypes)
			}
			for _, open := range wideOpen(p, ports) {
				t.Errorf("NetworkPolicy %s: %s", p.Name, open)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d policies select its pods, want one", w.name, found)
		}
	}
	for _, v := range all[*core1.Service](s) {
		for _, p := range v.Spec.Ports {
			if (p.TargetPort.String() == "ops") != (v.Name == "orders-ops") {
				t.Errorf("Service %s has the port %s", v.Name, p.Name)
			}
		}
	}
	mistaken := all[*networking.NetworkPolicy](s)[0].DeepCopy()
	mistaken.Spec.Ingress[1].From = nil
	mistaken.Spec.Ingress[0].Ports = nil
	if got := wideOpen(mistaken, []core1.ContainerPort{{Name: "http"}, {Name: "ops"}}); len(got) != 2 {
		t.Errorf("of two rules that are open, found %q", got)
	}
}

// wideOpen describes the connections that a policy allows but should not.
func wideOpen(p *networking.NetworkPolicy, ports []core1.ContainerPort) (found []string) {
	for i, r := range p.Spec.Ingress {
		if len(r.From) == 0 || len(r.Ports) == 0 {
			found = append(found, fmt.Sprintf("rule %d lets everybody in, or to every port", i))
			continue
		}
		for _, port := range r.Ports {
			if !hasPort(ports, *port.Port) {
				found = append(found, fmt.Sprintf("rule %d has the port %s, which the pods have not", i, port.Port))
			}
			for _, from := range r.From {
				if port.Port.String() == "ops" && from.NamespaceSelector == nil {
					found = append(found, fmt.Sprintf("rule %d lets others than the namespace of operators to the board", i))
				}
			}
		}
	}
	return found
}

// TestManifestControl: the checks find typical mistakes.
func TestManifestControl(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(folder + "/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"terminationGracePeriodSeconds:", "terminationGracePeriodSecond:"},
		{"failureThreshold: 30", "failureThreshold: many"},
		{"preStop: {sleep", "prestop: {sleep"},
		{"replicas: 3\n", "replicas: 3\n  replicas: 4\n"},
		{"kind: Deployment", "kind: Deploymint"},
		{"  name: orders\n", "  name: \"\"\n"},
	} {
		broken := bytes.Replace(text, []byte(c[0]), []byte(c[1]), 1)
		if _, err := decodeManifests(broken); err == nil || bytes.Equal(text, broken) {
			t.Errorf("%q in place of %q passes", c[1], c[0])
		}
	}
}

// members returns the options in the ConfigMap.
func (s *set) members() (*core.Options, *config.Config) {
	s.Helper()
	dsn := filepath.Join(s.TempDir(), "dsn")
	if err := os.WriteFile(dsn, []byte("postgres://orders@127.0.0.1/orders"), 0o600); err != nil {
		s.Fatal(err)
	}
	text := all[*core1.ConfigMap](s)[0].Data["tenure.yaml"]
	c, err := config.Load(&config.LoadOptions{Path: "tenure.yaml", Environ: []string{},
		Data: []byte(strings.ReplaceAll(text, "/etc/orders/store/dsn", dsn))})
	if err != nil {
		s.Fatal(err)
	}
	if err := c.Validate(postgres.Opener()); err != nil {
		s.Error(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		s.Errorf("the configuration has warnings: %q", w)
	}
	return c.Options(), c
}

// longestStop measures, in virtual time, how long Run takes to end with the slowest handler and a
// store that has stopped answering.
func longestStop(t *testing.T, o core.Options) (took time.Duration) {
	t.Helper()
	o.LockDir, o.Logger = "none", slog.New(slog.DiscardHandler)
	synctest.Test(t, func(t *testing.T) {
		link := &kvfault.Link{}
		b, err := memory.Open(t.Context(), memory.New(), "test", &memory.Options{Wrap: link.Wrap})
		if err != nil {
			t.Fatal(err)
		}
		e, err := core.NewElector(b, &o)
		if err != nil {
			t.Fatal(err)
		}
		held, end := make(chan struct{}), make(chan struct{})
		err = e.Contend(func(ctx context.Context, l *core.Lease) error {
			close(held)
			go func() { _, _ = l.Append(context.Background(), nil) }()
			<-end
			return nil
		}, "jobs")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		<-held
		link.Cut()
		stop()
		begun := time.Now()
		<-done // with an error, as the handler is stuck
		took = time.Since(begun)
		close(end)
		synctest.Wait()
		link.Heal()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return took
}

// TestGrace: the supervisors give a process enough time for the slowest stop, both with the
// configuration shown and with the options' defaults.
func TestGrace(t *testing.T) {
	t.Parallel()
	s := manifests(t)
	o, c := s.members()
	byDefault := core.Options{LameDuck: o.LameDuck}
	slowest := max(longestStop(t, *o), longestStop(t, byDefault))
	if documented := o.LameDuck + o.DrainBudget + 2*o.CallTimeout; slowest > documented || slowest < o.LameDuck+o.DrainBudget {
		t.Errorf("Run takes up to %v to end, and the times of the configuration add up to %v", slowest, documented)
	} else {
		slowest = documented
	}
	// Before Run ends, a Manager empties the member, within the Manager's budget.
	var sharded sharding.Options
	if err := c.Section("sharding", &sharded); err != nil || sharded.LeaveBudget == 0 {
		t.Errorf("the configuration has no leave_budget (%v)", err)
	}
	slowest += sharded.LeaveBudget
	if c.StopTimeout() < slowest {
		t.Errorf("stop_timeout %v is below the %v that a stop may take", c.StopTimeout(), slowest)
	}
	for _, w := range s.workloads() {
		grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
		before := time.Duration(0)
		for _, x := range w.pod.Spec.Containers {
			if w.member {
				before = time.Duration(x.Lifecycle.PreStop.Sleep.Seconds) * time.Second
				if p := x.ReadinessProbe; o.LameDuck < 2*time.Duration(p.PeriodSeconds)*time.Second || p.FailureThreshold != 1 {
					t.Errorf("%s: lame_duck %v is below two periods of the readiness probe, %d s", w.name, o.LameDuck, p.PeriodSeconds)
				}
				if p := x.LivenessProbe; time.Duration(p.PeriodSeconds*p.FailureThreshold)*time.Second < o.DrainBudget {
					t.Errorf("%s: the liveness probe ends a handler within its drain budget", w.name)
				}
			}
		}
		if grace < before+c.StopTimeout() {
			t.Errorf("%s: terminationGracePeriodSeconds %v is below preStop's %v and stop_timeout %v", w.name, grace, before, c.StopTimeout())
		}
	}
	for name, u := range units(t) {
		if stop := u.seconds("TimeoutStopSec"); stop < c.StopTimeout() {
			t.Errorf("%s: TimeoutStopSec %v is below stop_timeout %v", name, stop, c.StopTimeout())
		}
	}
}
