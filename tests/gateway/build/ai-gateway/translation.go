// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// An answer of a backend, read as it comes: what it has cost, and what the caller gets of it.
type response struct {
	from, to      string // schemas of backend and API
	events        bool
	model         string
	input, output int
	begun         bool
	stop          string
	rest          []byte // of a line that has not ended
	encoding      string // of the body
}

func (r *response) translates() bool { return r.from != r.to }

// Read a part of an answer; what takes its place, where the answer is translated.
func (r *response) take(part []byte, last bool) []byte {
	if !r.events {
		return r.whole(part)
	}
	made := &bytes.Buffer{}
	r.rest = append(r.rest, part...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			break
		}
		r.rest = rest
		if data, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); found {
			r.event(bytes.TrimSpace(data), made)
		}
	}
	if last && r.translates() && r.begun {
		r.end(made)
	}
	return made.Bytes()
}

func (r *response) whole(body []byte) []byte {
	if r.encoding == "gzip" {
		if reader, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(reader)
		}
	}
	read := object{}
	if json.Unmarshal(body, &read) != nil {
		return body
	}
	r.count(read)
	if !r.translates() {
		return body
	}
	text, stop := "", ""
	if choices, _ := read["choices"].([]any); len(choices) > 0 {
		choice, _ := choices[0].(object)
		message, _ := choice["message"].(object)
		text, _ = message["content"].(string)
		stop, _ = choice["finish_reason"].(string)
	}
	encoded, _ := json.Marshal(object{
		"id": read["id"], "type": "message", "role": "assistant", "model": r.model,
		"content":     []any{object{"type": "text", "text": text}},
		"stop_reason": stopReason(stop),
		"usage":       object{"input_tokens": r.input, "output_tokens": r.output},
	})
	return encoded
}

func (r *response) event(data []byte, made *bytes.Buffer) {
	read := object{}
	if json.Unmarshal(data, &read) != nil {
		return // [DONE]
	}
	r.count(read)
	if message, found := read["message"].(object); found {
		r.count(message)
	}
	if !r.translates() {
		return
	}
	if !r.begun {
		r.begun = true
		send(made, "message_start", object{"message": object{
			"id": read["id"], "type": "message", "role": "assistant", "model": r.model, "content": []any{},
			"usage": object{"input_tokens": r.input, "output_tokens": r.output},
		}})
		send(made, "content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	}
	choices, _ := read["choices"].([]any)
	for _, each := range choices {
		choice, _ := each.(object)
		delta, _ := choice["delta"].(object)
		if text, _ := delta["content"].(string); text != "" {
			send(made, "content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": text}})
		}
		if stop, _ := choice["finish_reason"].(string); stop != "" {
			r.stop = stop
		}
	}
}

func (r *response) end(made *bytes.Buffer) {
	send(made, "content_block_stop", object{"index": 0})
	send(made, "message_delta", object{
		"delta": object{"stop_reason": stopReason(r.stop)},
		"usage": object{"input_tokens": r.input, "output_tokens": r.output},
	})
	send(made, "message_stop", object{})
}

// Take the model and the usage that a part of an answer reports: later parts report all that was used so far.
func (r *response) count(read object) {
	if model, _ := read["model"].(string); model != "" {
		r.model = model
	}
	usage, _ := read["usage"].(object)
	for name, target := range map[string]*int{
		"prompt_tokens": &r.input, "input_tokens": &r.input, "completion_tokens": &r.output, "output_tokens": &r.output,
	} {
		if count, found := usage[name].(float64); found {
			*target = int(count)
		}
	}
}

// A request to Anthropic's API as one to that of OpenAI: its text, without tools and pictures.
func openAIRequest(body object, usage bool) object {
	messages := []any{}
	if system := plainText(body["system"]); system != "" {
		messages = append(messages, object{"role": "system", "content": system})
	}
	asked, _ := body["messages"].([]any)
	for _, each := range asked {
		message, _ := each.(object)
		messages = append(messages, object{"role": message["role"], "content": plainText(message["content"])})
	}
	made := object{"messages": messages}
	for name, as := range map[string]string{
		"max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "stream": "stream", "stop_sequences": "stop",
	} {
		if value, found := body[name]; found {
			made[as] = value
		}
	}
	if streams, _ := body["stream"].(bool); streams && usage {
		made["stream_options"] = object{"include_usage": true}
	}
	return made
}

func plainText(content any) string {
	if text, found := content.(string); found {
		return text
	}
	texts := []string{}
	parts, _ := content.([]any)
	for _, each := range parts {
		part, _ := each.(object)
		if text, found := part["text"].(string); found {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "")
}

func stopReason(reason string) string {
	switch reason {
	case "length":
		return "max_tokens"
	case "tool_calls":
		return "tool_use"
	default:
		return "end_turn"
	}
}

func send(made *bytes.Buffer, kind string, data object) {
	data["type"] = kind
	encoded, _ := json.Marshal(data)
	fmt.Fprintf(made, "event: %s\ndata: %s\n\n", kind, encoded)
}
