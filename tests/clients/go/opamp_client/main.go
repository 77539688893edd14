// An OpAMP agent made with opamp-go. It writes a line of JSON for each event, and reads commands from its input:
// "health WORD" reports this status, and the end of the input stops the agent.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"
)

type silent struct{}

func (silent) Debugf(context.Context, string, ...interface{}) {}
func (silent) Errorf(context.Context, string, ...interface{}) {}

func text(key, value string) *protobufs.KeyValue {
	return &protobufs.KeyValue{
		Key:   key,
		Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: value}},
	}
}

func say(event, detail string) {
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"event": event, "detail": detail}); err != nil {
		log.Fatal(err)
	}
}

func start(url, key string, uid uuid.UUID, wantsKey bool, offers chan<- *protobufs.OpAMPConnectionSettings) client.OpAMPClient {
	var agent client.OpAMPClient
	if strings.HasPrefix(url, "ws") {
		agent = client.NewWebSocket(silent{})
	} else {
		agent = client.NewHTTP(silent{})
	}
	host, _ := os.Hostname()
	description := &protobufs.AgentDescription{
		IdentifyingAttributes:    []*protobufs.KeyValue{text("service.name", "opamp-go"), text("service.version", "0.23.0")},
		NonIdentifyingAttributes: []*protobufs.KeyValue{text("host.name", host), text("host.id", "h-go"), text("os.type", "linux")},
	}
	capabilities := protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsHeartbeat |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig
	if wantsKey {
		capabilities |= protobufs.AgentCapabilities_AgentCapabilities_AcceptsOpAMPConnectionSettings
	}
	for _, err := range []error{
		agent.SetAgentDescription(description),
		agent.SetHealth(&protobufs.ComponentHealth{Healthy: true, Status: "StatusOK"}),
		agent.SetCapabilities(&capabilities),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	interval := 200 * time.Millisecond
	settings := types.StartSettings{
		OpAMPServerURL:    url,
		Header:            http.Header{"Authorization": []string{key}},
		InstanceUid:       types.InstanceUid(uid),
		HeartbeatInterval: &interval,
		EnableCompression: true,
		Callbacks: types.Callbacks{
			OnConnect:       func(context.Context) { say("connected", "") },
			OnConnectFailed: func(_ context.Context, err error) { say("failed", err.Error()) },
			OnError: func(_ context.Context, err *protobufs.ServerErrorResponse) {
				say("error", err.Type.String()+": "+err.ErrorMessage)
			},
			GetEffectiveConfig: func(context.Context) (*protobufs.EffectiveConfig, error) {
				file := &protobufs.AgentConfigFile{Body: []byte("password: canary-of-the-configuration")}
				return &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{
					ConfigMap: map[string]*protobufs.AgentConfigFile{"": file},
				}}, nil
			},
			OnOpampConnectionSettings: func(_ context.Context, offer *protobufs.OpAMPConnectionSettings) error {
				offers <- offer
				return nil
			},
		},
	}
	if err := agent.Start(context.Background(), settings); err != nil {
		log.Fatal(err)
	}
	return agent
}

func main() {
	url, key := os.Args[1], os.Args[2]
	uid := uuid.MustParse(os.Args[3])
	wantsKey := len(os.Args) > 4 && os.Args[4] == "key"
	offers := make(chan *protobufs.OpAMPConnectionSettings, 1)
	agent := start(url, key, uid, wantsKey, offers)
	lines := make(chan string)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			lines <- input.Text()
		}
		close(lines)
	}()
	for {
		select {
		case offer := <-offers:
			// as the specification says: connect again with the offered settings
			say("offer", offer.DestinationEndpoint)
			if err := agent.Stop(context.Background()); err != nil {
				log.Fatal(err)
			}
			agent = start(offer.DestinationEndpoint, offer.Headers.Headers[0].Value, uid, wantsKey, offers)
		case line, open := <-lines:
			if !open {
				if err := agent.Stop(context.Background()); err != nil {
					log.Fatal(err)
				}
				say("stopped", "")
				return
			}
			status := strings.TrimPrefix(line, "health ")
			if err := agent.SetHealth(&protobufs.ComponentHealth{Healthy: false, Status: status, LastError: "canary of an error"}); err != nil {
				log.Fatal(err)
			}
		}
	}
}
