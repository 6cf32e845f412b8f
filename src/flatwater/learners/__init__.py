"""PPO of recurrent policies, alone and beside a teacher: losses and returns pure, updates in place."""
