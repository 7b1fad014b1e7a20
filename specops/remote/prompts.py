"""Built-in prompts: coding and agentic, of the kind that speculation is deployed for."""

from __future__ import annotations

PROMPTS = (
    "Write a Python function that merges two sorted lists without using sort, and explain its complexity.",
    "You are an agent with the tools read_file and run_tests. The test suite fails in test_parser.py. "
    "State your plan, then the first tool call as JSON.",
    "Refactor this into smaller functions:\ndef report(rows):\n    total = 0\n    for row in rows:\n"
    "        if row['ok']:\n            total += row['amount']\n    print('total', total)\n",
    "Explain step by step why this SQL is slow and rewrite it: "
    "SELECT * FROM orders WHERE YEAR(created_at) = 2026 AND customer_id IN (SELECT id FROM customers)",
    "Write a Rust struct for a ring buffer of fixed capacity with push, pop and an iterator.",
    "Given the stack trace `KeyError: 'user_id' at handlers.py:88`, list three likely causes and a fix each.",
    "Tool result: exit code 1, `ModuleNotFoundError: No module named 'yaml'`. "
    "Decide what to do next and call a tool.",
    "Write unit tests in pytest for slugify(text), which lowercases, strips accents and joins with dashes.",
    "Turn this shell pipeline into Go: cat access.log | grep ' 500 ' | cut -d' ' -f1 | sort | uniq -c",
    "Review this diff line by line:\n-    return cache[key]\n+    return cache.get(key) or load(key)\n",
    "Design a REST API for a job queue: endpoints, status codes, and the JSON of each request and answer.",
    "Implement a debounce function in TypeScript with proper types, and show how a React component uses it.",
    "You may call search(query) and open(url). Find out which release introduced the flag, "
    "citing what you read. Begin.",
    "Write a Dockerfile for a FastAPI service that runs as an unprivileged user and has a health check.",
    "Explain the difference between a mutex and a semaphore with a short C example of each.",
    "Convert this callback code to async and await:\nfs.readFile(path, (err, data) => { if (err) throw err; "
    "parse(data, (err, tree) => { done(tree); }); });",
    "Write a binary search in C that cannot overflow, then prove its loop invariant in a comment.",
    "Plan how to take a 2 TB PostgreSQL database to a new major version with a minute of downtime.",
    "Write a regular expression for ISO 8601 dates with optional time zone, and ten test cases.",
    "The build takes 14 minutes. Here are the timings by target: compile 410 s, link 95 s, tests 335 s. "
    "Say what to try first and why.",
)
