// Calls with Anthropic's SDK, which writes spans by itself. Arguments: names of calls.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"
)

var calls = map[string]func(context.Context) error{
	"messages": message,
	"stream":   stream,
	"tools":    tools,
	"failures": failures,
	"retries":  retries,
}

func client(path string, retries int) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(os.Getenv("PROVIDER_URL")+path), option.WithMaxRetries(retries))
}

func asked() anthropic.MessageNewParams {
	question := anthropic.NewUserMessage(anthropic.NewTextBlock("What is the toll?"))
	return anthropic.MessageNewParams{
		Model:     "claude-sonnet-4-5",
		MaxTokens: 1024,
		Messages:  []anthropic.MessageParam{question},
	}
}

func message(ctx context.Context) error {
	of := client("", 0)
	_, err := of.Messages.New(ctx, asked())
	return err
}

func stream(ctx context.Context) error {
	of := client("", 0)
	events := of.Messages.NewStreaming(ctx, asked())
	defer events.Close()
	for events.Next() {
	}
	return events.Err()
}

// tools makes two calls: the prompt, and the tool's result.
func tools(ctx context.Context) error {
	of, turns := client("", 0), asked()
	city := map[string]any{"city": map[string]any{"type": "string"}}
	weather := anthropic.ToolInputSchemaParam{Properties: city, Required: []string{"city"}}
	turns.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(weather, "weather")}
	answer, err := of.Messages.New(ctx, turns)
	if err != nil {
		return err
	}
	results := []anthropic.ContentBlockParamUnion{}
	for _, block := range answer.Content {
		if block.Type == "tool_use" {
			results = append(results, anthropic.NewToolResultBlock(block.ID, "rain in Bath", false))
		}
	}
	turns.Messages = append(turns.Messages, answer.ToParam(), anthropic.NewUserMessage(results...))
	_, err = of.Messages.New(ctx, turns)
	return err
}

func failures(ctx context.Context) error {
	for _, status := range []int{429, 500} {
		of := client(fmt.Sprintf("/fail-%d", status), 0)
		_, err := of.Messages.New(ctx, asked())
		var failed *anthropic.Error
		if !errors.As(err, &failed) || failed.StatusCode != status {
			return fmt.Errorf("it did not fail with %d: %v", status, err)
		}
	}
	return nil
}

func retries(ctx context.Context) error {
	of := client("/flaky-500", 2)
	_, err := of.Messages.New(ctx, asked())
	return err
}

func main() {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		log.Fatal(err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	for _, name := range os.Args[1:] {
		if err := calls[name](ctx); err != nil {
			log.Fatal(name, ": ", err)
		}
	}
	if err := provider.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}
