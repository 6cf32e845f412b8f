"""Rules of a game that its designers write in Lua, and a server in Python that calls them.

Thread: https://github.com/scoder/lupa/pull/212
Looks like: the server grows with each fight, while its own tables stay small.
Cause: a rule notes each blow in a table of Lua, which lives as long as the runtime.
Fix: clear the table in Lua when a fight ends, or bound the runtime: `LuaRuntime(max_memory=...)`.
"""

import random
import sys

import lupa

RULES = """
fights = {}
function strike(fight, attacker, defender, strength)
  local blows = fights[fight]
  if blows == nil then blows = {}; fights[fight] = blows end
  local harm = strength * (1 + #blows % 3)
  blows[#blows + 1] = {from = attacker, to = defender, harm = harm, text = attacker .. " hits " .. defender .. #blows}
  return harm
end
"""


class Referee:
    def __init__(self):
        self.lua = lupa.LuaRuntime()
        self.lua.execute(RULES)

    def strike(self, fight, attacker, defender):
        rule = self.lua.globals().strike
        return rule(fight, attacker, defender, random.random())  # <- here


def fight(referee, number):
    health = {"ogre": 60.0, "elf": 60.0}
    turn = ["ogre", "elf"]
    while min(health.values()) > 0:
        health[turn[1]] -= referee.strike(number, f"{turn[0]} {number}", f"{turn[1]} {number}")
        turn.reverse()
    return max(health, key=health.get)


def main(fights: int) -> None:
    referee = Referee()
    winners = [fight(referee, number) for number in range(fights)]
    print("ogres won", winners.count("ogre"))


if __name__ == "__main__":
    random.seed(9)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
