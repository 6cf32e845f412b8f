"""An agent behind a chat: each conversation has a thread of its own, and ends.

Thread: https://github.com/langchain-ai/langgraph/issues/3898, https://github.com/NVIDIA/NeMo-Fabric/pull/277
Looks like: the service grows with the turns that were ever answered, also those of chats that are over.
Cause: the checkpointer in memory keeps a snapshot of every step of every thread.
Fix: `saver.delete_thread(thread_id)` when a chat is over, or a checkpointer with a database.
"""

import random
import sys
import time
import uuid
from operator import add
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph


class Chat(TypedDict):
    messages: Annotated[list[str], add]
    documents: list[str]


def search(state: Chat) -> dict[str, list[str]]:
    """The passages that belong to the newest question."""
    words = random.Random(len(state["messages"][-1]))
    return {"documents": ["".join(words.choices("abcdefgh ", k=6000)) for _ in range(4)]}


def answer(state: Chat) -> dict[str, list[str]]:
    time.sleep(0.02)
    return {"messages": [f"I found {len(state['documents'])} passages: {state['documents'][0][:400]}"]}


def main(chats: int) -> None:
    saver = InMemorySaver()
    graph = StateGraph(Chat).add_node("search", search).add_node("answer", answer)
    graph.add_edge(START, "search").add_edge("search", "answer").add_edge("answer", END)
    agent = graph.compile(checkpointer=saver)
    for _ in range(chats):
        config = {"configurable": {"thread_id": str(uuid.uuid4())}}
        for turn in range(4):
            agent.invoke({"messages": [f"What is known about topic {turn}?"]}, config)  # <- here
            time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
