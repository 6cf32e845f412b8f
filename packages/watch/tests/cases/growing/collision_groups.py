"""Ships that are asked whether they touch another, by a group of the others made for the question.

Thread: https://github.com/pygame/pygame/issues/3763
Looks like: a game grows with its frames, although the same few ships fly through all of them.
Fix: a list of the others, or `others.empty()` after the question.
"""

import sys
import time

import pygame


class Ship(pygame.sprite.Sprite):
    def __init__(self, column: int) -> None:
        super().__init__()
        self.rect = pygame.Rect(20 * column, 0, 10, 10)


def touches(ship: Ship, fleet: pygame.sprite.Group) -> bool:
    others = pygame.sprite.Group([other for other in fleet if other is not ship])  # <- here
    return pygame.sprite.spritecollideany(ship, others) is not None


def main(rounds: int) -> None:
    fleet = pygame.sprite.Group([Ship(column) for column in range(28)])
    touched = 0
    for _ in range(rounds):
        for _ in range(28):
            for ship in fleet:
                ship.rect.move_ip(0, 1)
            touched += sum(touches(ship, fleet) for ship in fleet)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
