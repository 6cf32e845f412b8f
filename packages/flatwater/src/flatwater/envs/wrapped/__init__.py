"""Other people's environments as worlds, Gymnasium's and PettingZoo's, and MiniGrid's expert as a teacher."""
