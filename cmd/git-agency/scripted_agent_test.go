package main

// scriptedClaude is a small agent that speaks the stream of claude.
const scriptedClaude = `#!/bin/sh
test "$(cat)" = "Add refunds." || exit 9
echo work >>refunds && git add refunds && git commit -q -m refunds
echo '{"type":"system","subtype":"init","session_id":"s"}'
echo '{"type":"assistant","session_id":"s","message":{"id":"m","content":[{"type":"text","text":"I added refunds."}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","result":"I added refunds.","total_cost_usd":0.01,"usage":{"input_tokens":1,"output_tokens":1},"permission_denials":[]}'
`
