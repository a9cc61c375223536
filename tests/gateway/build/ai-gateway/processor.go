// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	requestHeader   = "x-ai-eg-internal-req-id"
	pathHeader      = "x-ai-eg-original-path"
	openAIPrefix    = "/v1"
	anthropicPath   = "/anthropic/v1/messages"
	attributesOf    = "envoy.filters.http.ext_proc"
	callerVariable  = "LOG_REQUEST_HEADER_ATTRIBUTES"
	callerByDefault = "x-modelplane-caller:caller,x-modelplane-subject:subject"
)

// A request between its two filters in Envoy: before a backend is chosen, and after (once for each attempt).
type request struct {
	schema   string // of the API
	path     string // below that of the API: /chat/completions
	body     object
	model    string
	headers  map[string]string // as they were before a backend was chosen
	logged   map[string]string
	streams  bool
	lock     sync.Mutex
	chosen   *backend
	response response
}

// Whether there was an attempt before this one.
func (r *request) choose(chosen *backend) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	before := r.chosen
	r.chosen = chosen
	return before != nil
}

func (r *request) backend() *backend {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.chosen
}

type processor struct {
	extproc.UnimplementedExternalProcessorServer
	state    *state
	lock     sync.Mutex
	requests map[string]*request
}

func (p *processor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	id, headers := "", map[string]string{}
	defer func() { p.forget(id) }()
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil // Envoy has ended it.
		}
		answer := &extproc.ProcessingResponse{}
		switch asked := message.Request.(type) {
		case *extproc.ProcessingRequest_RequestHeaders:
			headers = plain(asked.RequestHeaders.Headers)
			if attributes := message.Attributes[attributesOf]; attributes != nil {
				answer = p.rewrite(headers, attributes)
			} else {
				answer = p.begin(headers)
			}
		case *extproc.ProcessingRequest_RequestBody:
			id, answer = p.read(headers, asked.RequestBody.Body)
		case *extproc.ProcessingRequest_ResponseHeaders:
			answer = p.responseHeaders(p.find(id), plain(asked.ResponseHeaders.Headers))
		case *extproc.ProcessingRequest_ResponseBody:
			answer = p.responseBody(p.find(id), asked.ResponseBody)
		default:
			return fmt.Errorf("no such message is expected: %T", asked)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (p *processor) find(id string) *request {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.requests[id]
}

func (p *processor) forget(id string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.requests, id)
}

// Answer what has no body: the list of models.
func (p *processor) begin(headers map[string]string) *extproc.ProcessingResponse {
	asked, _, _ := strings.Cut(headers[":path"], "?")
	if headers[":method"] == "GET" && asked == openAIPrefix+"/models" {
		models := []any{}
		for _, name := range p.state.configuration().models {
			models = append(models, object{"id": name, "object": "model", "created": 0, "owned_by": "Envoy AI Gateway"})
		}
		return immediate(200, object{"object": "list", "data": models})
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{}},
	}}
}

// Tell Envoy the model that the body asks for, whatever the headers say.
func (p *processor) read(headers map[string]string, body []byte) (string, *extproc.ProcessingResponse) {
	made := &request{headers: headers, logged: map[string]string{}}
	asked, _, _ := strings.Cut(headers[":path"], "?")
	switch {
	case asked == anthropicPath:
		made.schema, made.path = schemaAnthropic, "/messages"
	case strings.HasPrefix(asked, openAIPrefix+"/"):
		made.schema, made.path = schemaOpenAI, strings.TrimPrefix(asked, openAIPrefix)
	default:
		return "", immediate(404, failure("not_found_error", "no such path: "+asked))
	}
	if err := json.Unmarshal(body, &made.body); err != nil {
		return "", immediate(400, failure("invalid_request_error", "the body is not JSON: "+err.Error()))
	}
	made.model, _ = made.body["model"].(string)
	if made.model == "" {
		return "", immediate(400, failure("invalid_request_error", "the body names no model"))
	}
	made.streams, _ = made.body["stream"].(bool)
	if made.streams && made.path == "/chat/completions" && p.state.configuration().costs {
		options, _ := made.body["stream_options"].(object)
		if options == nil {
			options = object{}
		}
		options["include_usage"] = true
		made.body["stream_options"] = options
	}
	for header, name := range loggedHeaders() {
		if value := headers[header]; value != "" {
			made.logged[name] = value
		}
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random)
	id := hex.EncodeToString(random)
	p.lock.Lock()
	p.requests[id] = made
	p.lock.Unlock()
	set := map[string]string{modelHeader: made.model, requestHeader: id}
	if headers[pathHeader] == "" {
		set[pathHeader] = headers[":path"]
	}
	return id, &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{
			Response: &extproc.CommonResponse{HeaderMutation: mutation(set, nil), ClearRouteCache: true},
		}},
		DynamicMetadata: made.metadata(nil),
	}
}

// Make of a request what the backend that Envoy has chosen takes.
func (p *processor) rewrite(headers map[string]string, attributes *structpb.Struct) *extproc.ProcessingResponse {
	found := p.find(headers[requestHeader])
	chosen := p.state.configuration().backends[attributes.Fields[hostAttribute].GetStringValue()]
	if found == nil || chosen == nil {
		return empty(500)
	}
	// As with the original, a request that comes from another gateway is read by the path that it had there.
	if first, _, _ := strings.Cut(headers[pathHeader], "?"); (first == anthropicPath) != (found.schema == schemaAnthropic) {
		return empty(500)
	}
	if found.schema == schemaOpenAI && chosen.schema == schemaAnthropic {
		return immediate(422, failure("invalid_request_error", "this model takes requests at /anthropic/v1/messages only"))
	}
	again := found.choose(chosen)
	body := object{}
	for name, value := range found.body {
		body[name] = value
	}
	below := found.path
	if found.schema == schemaAnthropic && chosen.schema == schemaOpenAI {
		body, below = openAIRequest(body, p.state.configuration().costs), "/chat/completions"
	}
	body["model"] = found.model
	if chosen.model != "" {
		body["model"] = chosen.model
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return immediate(500, failure("server_error", err.Error()))
	}
	prefix := chosen.prefix
	if prefix == "" {
		prefix = "v1"
	}
	set := map[string]string{
		":path": path.Join("/", prefix, below), "content-length": strconv.Itoa(len(encoded)), "content-type": "application/json",
	}
	remove := []string{}
	for _, name := range chosen.remove {
		if !untouchable(name) {
			remove = append(remove, strings.ToLower(name))
		}
	}
	for name, value := range chosen.set {
		set[strings.ToLower(name)] = value
	}
	if again {
		remove = append(remove, restore(set, remove, found.headers, headers)...)
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{
			Status:         extproc.CommonResponse_CONTINUE_AND_REPLACE,
			HeaderMutation: mutation(set, remove),
			BodyMutation:   &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: encoded}},
		}},
	}}
}

// Headers that no one may change: the processor knows a request again by them.
func untouchable(name string) bool {
	return strings.HasPrefix(name, ":") || strings.HasPrefix(strings.ToLower(name), "x-ai-eg-")
}

// What an attempt before has done to headers stays, so it is undone: `set` gets those that the caller sent, and what was
// added since is returned, credentials of another backend among it.
func restore(set map[string]string, removed []string, sent, now map[string]string) []string {
	for name, value := range sent {
		if _, found := set[name]; !found && !untouchable(name) && !slices.Contains(removed, name) {
			set[name] = value
		}
	}
	added := []string{}
	for name := range now {
		_, wanted := set[name]
		if _, found := sent[name]; !found && !wanted && !untouchable(name) {
			added = append(added, name)
		}
	}
	return added
}

func (p *processor) responseHeaders(found *request, headers map[string]string) *extproc.ProcessingResponse {
	answer := &extproc.ProcessingResponse{}
	common := &extproc.CommonResponse{}
	answer.Response = &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extproc.HeadersResponse{Response: common}}
	if found == nil || found.backend() == nil {
		return answer
	}
	answer.DynamicMetadata = found.metadata(nil)
	if headers[":status"] != "200" {
		return answer
	}
	// The original has no decoder of other encodings.
	encoding := headers["content-encoding"]
	if !slices.Contains([]string{"", "identity", "gzip", "br"}, encoding) {
		return empty(500)
	}
	answer.ModeOverride = &mode.ProcessingMode{ResponseHeaderMode: mode.ProcessingMode_SEND}
	found.response = response{from: found.backend().schema, to: found.schema, encoding: encoding}
	if strings.HasPrefix(headers["content-type"], "text/event-stream") {
		answer.ModeOverride.ResponseBodyMode = mode.ProcessingMode_STREAMED
		found.response.events = true
	} else {
		answer.ModeOverride.ResponseBodyMode = mode.ProcessingMode_BUFFERED
	}
	if found.response.translates() {
		common.HeaderMutation = mutation(nil, []string{"content-length", "content-encoding"})
	}
	return answer
}

func (p *processor) responseBody(found *request, body *extproc.HttpBody) *extproc.ProcessingResponse {
	answer := &extproc.ProcessingResponse{}
	common := &extproc.CommonResponse{}
	answer.Response = &extproc.ProcessingResponse_ResponseBody{ResponseBody: &extproc.BodyResponse{Response: common}}
	if found == nil {
		return answer
	}
	changed := found.response.take(body.Body, body.EndOfStream)
	if found.response.translates() {
		common.BodyMutation = &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: changed}}
		if len(changed) == 0 {
			common.BodyMutation = &extproc.BodyMutation{Mutation: &extproc.BodyMutation_ClearBody{ClearBody: true}}
		}
	}
	if body.EndOfStream {
		answer.DynamicMetadata = found.metadata(&found.response)
	}
	return answer
}

// What the access log and rate limits read.
func (r *request) metadata(done *response) *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, value := range r.logged {
		fields[name] = structpb.NewStringValue(value)
	}
	chosen := r.backend()
	if chosen != nil {
		fields["ai_service_backend_name"] = structpb.NewStringValue(chosen.name)
		fields["model_name_override"] = structpb.NewStringValue(chosen.model)
	}
	if done != nil {
		fields["response_model"] = structpb.NewStringValue(done.model)
		counted := map[string]int{"InputToken": done.input, "OutputToken": done.output, "TotalToken": done.input + done.output}
		for name, cost := range chosen.costs {
			if count, known := counted[cost.kind]; known {
				fields[name] = structpb.NewNumberValue(float64(count))
			} else if cost.program != nil {
				if count, err := cost.evaluate(chosen.key, r.model, done); err == nil {
					fields[name] = structpb.NewNumberValue(float64(count))
				} else {
					log.Printf("%s: %v", name, err)
				}
			}
		}
	}
	inner := structpb.NewStructValue(&structpb.Struct{Fields: fields})
	return &structpb.Struct{Fields: map[string]*structpb.Value{metadataName: inner}}
}

// Header -> name in the metadata, as in HEADER:NAME,HEADER:NAME.
func loggedHeaders() map[string]string {
	text, found := os.LookupEnv(callerVariable)
	if !found {
		text = callerByDefault
	}
	made := map[string]string{}
	for _, each := range strings.Split(text, ",") {
		if header, name, found := strings.Cut(each, ":"); found {
			made[strings.TrimSpace(header)] = strings.TrimSpace(name)
		}
	}
	return made
}

func plain(headers *core.HeaderMap) map[string]string {
	made := map[string]string{}
	for _, each := range headers.GetHeaders() {
		value := each.Value
		if len(each.RawValue) > 0 {
			value = string(each.RawValue)
		}
		made[strings.ToLower(each.Key)] = value
	}
	return made
}

func mutation(set map[string]string, remove []string) *extproc.HeaderMutation {
	made := &extproc.HeaderMutation{RemoveHeaders: remove}
	for name, value := range set {
		made.SetHeaders = append(made.SetHeaders, &core.HeaderValueOption{
			Header:       &core.HeaderValue{Key: name, RawValue: []byte(value)},
			AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return made
}

func failure(kind, message string) object {
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

func empty(status int) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extproc.ImmediateResponse{Status: &envoytype.HttpStatus{Code: envoytype.StatusCode(status)}},
	}}
}

func immediate(status int, body object) *extproc.ProcessingResponse {
	encoded, _ := json.Marshal(body)
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extproc.ImmediateResponse{
			Status:  &envoytype.HttpStatus{Code: envoytype.StatusCode(status)},
			Headers: mutation(map[string]string{"content-type": "application/json"}, nil),
			Body:    encoded,
		},
	}}
}
